"""Whole training steps beside eager and torch.compile; writes the table into docs/training.md.

`make steps`, on an otherwise idle machine. `python bench/steps.py --from out.json` writes it from
figures measured before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from marks import rewrite
from performance import where
from rich.console import Console

from nimble.bench import Result, Row, Settings
from nimble.bench.command import run_bench
from nimble.bench.contestants import NIMBLE
from nimble.bench.training import named

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
STEPS = [
    *(
        named(model, "sgd")
        for model in (
            "mobilenet_v2@32x32",
            "efficientnet_b0@32x32",
            "resnet50@32x32",
            "mobilenet_v2@32x128",
        )
    ),
    *(named(model, "adamw") for model in ("bert_tiny@128x8", "lstm@32x8")),
]
PEERS = ("eager", "compile")
SECONDS = 40


def main(
    figures: Annotated[
        Path | None, typer.Option("--from", help="the JSON of an earlier bench")
    ] = None,
    out: Annotated[Path, typer.Option(help="where the JSON of this bench goes")] = Path(
        "build/steps.json"
    ),
) -> None:
    if figures is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        settings = Settings(PEERS, seconds=SECONDS, timeout=900)
        page = out.with_suffix(".html")
        result = run_bench(STEPS, settings, Console(), Console(stderr=True), out, page)
    else:
        result = Result.load(figures)
    rewrite(PAGE, "steps", table(result))


def table(result: Result) -> Iterator[str]:
    yield (
        f"{where(result)} Median milliseconds of a whole step; how much longer the others take, "
        "with the interval of 95 %; the most memory that a process held while it took steps, "
        "and ever."
    )
    yield ""
    yield "| step | Nimble | eager | torch.compile | MB: Nimble, eager, torch.compile |"
    yield "|---|---|---|---|---|"
    for model in result.models:
        rows = {row.contestant: row for row in result.of(model)}
        memory = ", ".join(
            f"{rows[name].running_mb or 0:.0f} ({rows[name].peak_mb or 0:.0f})"
            for name in (NIMBLE, *PEERS)
        )
        cells = " | ".join(_ratio(rows[name]) for name in PEERS)
        yield f"| {model} | {rows[NIMBLE].median_ms or 0:.1f} ms | {cells} | {memory} |"


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return row.reason or "-"
    return f"{row.ratio:.2f} x ({row.ratio_low:.2f} to {row.ratio_high:.2f})"


if __name__ == "__main__":
    typer.run(main)
