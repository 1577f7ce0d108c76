"""Nimble and ONNX Runtime beside a process that keeps one core busy. `make burdened`.

Writes its table into docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from marks import rewrite
from performance import MODELS, where
from rich.console import Console

from nimble.bench import Result, Settings
from nimble.bench.command import run_bench

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PEER = "onnxruntime"


def main(
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("build/burdened.json"),
    models: Annotated[str, typer.Option(help="the set")] = ",".join(MODELS),
    seconds: Annotated[float, typer.Option(help="for the rounds of a network")] = 15,
) -> None:
    """Measure, and rewrite the table."""
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = Settings((PEER,), seconds=seconds, busy=1)
    console = Console(stderr=True)
    result = run_bench(models.split(","), settings, console, console, out, out.with_suffix(".html"))
    rewrite(PAGE, "burdened", list(rows(result)))


def rows(result: Result) -> Iterator[str]:
    """A row a network, each contestant at its better number of threads."""
    yield (
        f"{where(result)} One other process kept a core busy. Median milliseconds, each at its "
        "better number of threads. Bold: ONNX Runtime wins, or may win."
    )
    yield ""
    yield "| network | Nimble | threads | ONNX Runtime | threads | ONNX Runtime / Nimble |"
    yield "|---" * 6 + "|"
    for model in result.models:
        best = {row.contestant: row for row in result.rows if row.model == model and row.counts}
        cells = []
        for name in ("nimble", PEER):
            row = best.get(name)
            cells += [f"{row.median_ms:.3f}", f"{row.threads}"] if row else ["-", "-"]
        peer = best.get(PEER)
        ratio = "-"
        if peer is not None and peer.ratio_low is not None:
            ratio = f"{peer.ratio:.2f} ({peer.ratio_low:.2f} to {peer.ratio_high:.2f})"
            ratio = f"**{ratio}**" if peer.ratio_low < 1 else ratio
        yield f"| {model} | {' | '.join(cells)} | {ratio} |"


if __name__ == "__main__":
    typer.run(main)
