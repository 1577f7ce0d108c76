"""Counts the zoo's networks and writes docs/zoo.md, beside what is published. `make zoo`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nimble import zoo
from nimble.zoo.published import PUBLISHED, Published

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
INTRODUCTION = """# The zoo

Written by `make zoo`. Our own compact definitions of networks that the field measures, with random
weights from a seed and calibrated batch norms: `nimble.zoo.build("resnet50")`, or by name in
`nimble check`, `nimble plan` and `nimble bench`. `@` sets the resolution or length and the batch:
`mobilenet_v2@32`, `resnet50@224x8`.

Parameters in millions; multiply-accumulates in thousand millions, at batch 1 and the usual size,
counted by PyTorch's FlopCounterMode. A test holds every count to within 1 % of what is published,
or to the spread that its source states.

| network | parameters | published | multiply-accumulates | published | source |
|---|---|---|---|---|---|"""


def rows() -> Iterator[str]:
    for name in zoo.names():
        parameters, multiplies = zoo.count(name)
        theirs = PUBLISHED.get(name, Published(None, None, "our own"))
        yield (
            f"| {name} | {parameters / 1e6:.3f} | {_number(theirs.parameters)} "
            f"| {multiplies / 1e9:.4f} | {_number(theirs.multiplies)} | {theirs.source} |"
        )


def _number(published: float | None) -> str:
    return "" if published is None else f"{published:g}"


if __name__ == "__main__":
    PAGE.write_text("\n".join([INTRODUCTION, *rows(), ""]))
