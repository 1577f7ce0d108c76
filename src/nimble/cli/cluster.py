"""`nimble cluster …`: the commands about many jobs on many machines."""

from __future__ import annotations

import typer

from nimble.cli.cluster_fit import fit_command

cluster_app = typer.Typer(
    help="Many jobs on many machines: simulate, compare, fit.", no_args_is_help=True
)
cluster_app.command(name="fit")(fit_command)
