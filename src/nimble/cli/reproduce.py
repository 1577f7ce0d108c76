"""`nimble reproduce`: published results beside ours, one command for each paper."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from nimble.cli.console import check_writable, or_exit, out, steps
from nimble.cli.reproduce_dally import dally_command
from nimble.reproduce.figures import write_figures
from nimble.reproduce.rows import Row, Tables, networks, tables

reproduce_app = typer.Typer(
    help="Published results beside ours, one command for each paper.", no_args_is_help=True
)


@reproduce_app.callback()
def _reproduce() -> None:
    """Published results beside ours, one command for each paper."""


reproduce_app.command(name="dally")(dally_command)


@reproduce_app.command(name="nimble")
def nimble_command(
    json_file: Annotated[Path | None, typer.Option("--json", help="write the rows")] = None,
    figures: Annotated[Path | None, typer.Option(help="write pictures into this folder")] = None,
) -> None:
    """Nimble's paper: speed-ups on a V100, predicted by a model that did not see the network."""
    if json_file is not None:
        or_exit(partial(check_writable, json_file))
    wanted = list(networks())
    captured = {}
    with steps() as say:
        for place, (name, capture) in enumerate(wanted, 1):
            say(f"capturing {name} ({place} of {len(wanted)})")
            captured[name] = or_exit(capture)
        found = tables(captured, say)
    for row_table in _tables(found):
        out.print(row_table)
    out.print(_summary(found), highlight=False, soft_wrap=True)
    if json_file is not None:
        json_file.write_text(json.dumps(_as_json(found), indent=1))
        typer.echo(f"rows written to {json_file}")
    if figures is not None:
        for path in write_figures(found, figures):
            typer.echo(f"written {path}")


def _as_json(found: Tables) -> dict[str, object]:
    rows = [
        {"network": r.network, "metric": r.metric, "published": r.published,
         "predicted": r.predicted, "held_out": r.held_out}
        for r in found.rows
    ]  # fmt: skip
    return {"rows": rows}


def _tables(found: Tables) -> list[Table]:
    seen = {(r.network, r.metric): r for r in found.cells(False)}
    cells = _table("speed-ups over eager PyTorch on a V100, as predicted", "fitted too", "error")
    for row in found.cells(True):
        fitted = seen[row.network, row.metric]
        cells.add_row(*_columns(row), f"{fitted.predicted:.2f}", f"{fitted.error:+.0%}")
    others = _table("what else is published")
    for row in found.rows:
        if (row.network, row.metric) not in seen:
            others.add_row(*_columns(row))
    return [cells, others]


def _table(title: str, *more: str) -> Table:
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for column in ("network", "metric", "published", "predicted", "error", "held out", *more):
        left = column in ("network", "metric")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _columns(row: Row) -> tuple[str, ...]:
    digits = 3 if row.unit == "ms" or row.published < 2 else 2
    unit = f" {row.unit}" if row.unit else ""
    return (
        row.network, row.metric, f"{row.published:.{digits}f}{unit}",
        f"{row.predicted:.{digits}f}{unit}", f"{row.error:+.0%}", "yes" if row.held_out else "no",
    )  # fmt: skip


def _summary(found: Tables) -> str:
    worst = found.worst()
    constants = ", ".join(f"{name} {value:.3g}" for name, value in found.constants.items())
    return (
        f"{len(found.cells(True))} published speed-ups, each predicted by a model fitted without "
        f"that network: off by {found.median(True):.1%} in the median, and at worst by "
        f"{abs(worst.error):.0%} ({worst.network}). Fitted to all: {found.median(False):.1%}.\n"
        f"Constants of the fit to all: {constants}.\n"
        "Everything in the column `predicted` is a prediction; no GPU was used."
    )
