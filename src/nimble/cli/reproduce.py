"""`nimble reproduce`: published results beside ours, one command for each paper."""

from __future__ import annotations

import typer

from nimble.cli.reproduce_dally import dally_command

reproduce_app = typer.Typer(
    help="Published results beside ours, one command for each paper.", no_args_is_help=True
)


@reproduce_app.callback()
def _reproduce() -> None:
    """Published results beside ours, one command for each paper."""


reproduce_app.command(name="dally")(dally_command)
