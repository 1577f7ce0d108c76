"""`nimble cluster …`: the commands about many jobs on many machines."""

from __future__ import annotations

import typer

from nimble.cli.cluster_fit import fit_command
from nimble.cli.cluster_run import compare, simulate, sweep

cluster_app = typer.Typer(
    help="Many jobs on many machines: simulate, compare, sweep, fit (docs/cluster.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cluster_app.command()(simulate)
cluster_app.command()(compare)
cluster_app.command()(sweep)
cluster_app.command(name="fit")(fit_command)
