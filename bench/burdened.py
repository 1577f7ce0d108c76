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
from versus import raced, versus

from nimble.bench import Result, Settings

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PEER = "onnxruntime"


def main(
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("build/burdened.json"),
    models: Annotated[str, typer.Option(help="the set")] = ",".join(MODELS),
    seconds: Annotated[float, typer.Option(help="for the rounds of a network")] = 15,
) -> None:
    """Measure, and rewrite the table."""
    settings = Settings((PEER,), seconds=seconds, busy=1)
    rewrite(PAGE, "burdened", list(rows(raced(models.split(","), settings, out))))


def rows(result: Result) -> Iterator[str]:
    yield (
        f"{where(result)} One other process kept a core busy. Median milliseconds, each at its "
        "better number of threads. Bold: ONNX Runtime wins, or may win."
    )
    yield ""
    yield from versus(result, {PEER: "ONNX Runtime"}, {})


if __name__ == "__main__":
    typer.run(main)
