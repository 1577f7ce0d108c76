"""Tiles with a fixed worker beside tiles that workers claim: quiet, and beside a busy process.

`make claims`, on an otherwise idle machine; writes the table into docs/design.md. Fixed: as many
tiles of a task as workers, each on the stream of one. Claimed: more and smaller tiles on more
streams than there are threads, so that whoever is free takes the next that is ready.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from marks import rewrite
from rich.progress import track
from turns import in_turn

import nimble
from nimble import zoo
from nimble.bench.busy import busy_processes
from nimble.choose import planned
from nimble.devices.cpu import Replay, supported
from nimble.lower import split
from nimble.lower.cut import LEAST_TO_SPLIT_NS

PAGE = Path(__file__).parents[1] / "docs" / "design.md"
NETWORKS = ("mobilenet_v2", "googlenet", "resnet50", "nasnet_a_mobile", "mobilenet_v2@32")
CLAIMED = (4, 8)
"""Tiles of a task, and streams."""
SECONDS = 3.0


def replays(name: str) -> list[Replay]:
    """With fixed tiles, then with claimed ones, for two workers."""
    model, args = zoo.build(name)
    plan = nimble.compile(model, args, workers=2).plans[0]
    found = []
    for pieces in (2, *CLAIMED):
        graph = split(plan.lowered, pieces, LEAST_TO_SPLIT_NS, supported)
        made = planned(graph, "tiles", pieces, None)
        found.append(Replay(made, {**plan.tensors, **plan.constants}))
    return found


def measured(runs: list[Replay], inputs: list[torch.Tensor]) -> list[list[float]]:
    return in_turn([functools.partial(run, inputs) for run in runs], SECONDS)


def rows() -> Iterator[str]:
    heads = [f"claimed, {pieces} tiles" for pieces in CLAIMED]
    yield "| network | | fixed, 2 tiles | " + " | ".join(heads) + " |"
    yield "|---|---|---|" + "---|" * len(CLAIMED)
    for name in track(NETWORKS, "networks", transient=True):
        _, args = zoo.build(name)
        runs = replays(name)
        measured(runs, list(args))
        yield f"| {name} | quiet | " + " | ".join(_cells(measured(runs, list(args)))) + " |"
        with busy_processes(1):
            cells = _cells(measured(runs, list(args)))
        yield f"| {name} | disturbed | " + " | ".join(cells) + " |"


def _cells(times: list[list[float]]) -> Iterator[str]:
    fixed = statistics.median(times[0])
    for mine in times:
        low, middle, high = (sorted(mine)[int(len(mine) * q)] for q in (0.1, 0.5, 0.9))
        more = "" if mine is times[0] else f": {middle / fixed:.2f} x"
        yield f"{middle:.2f} ms ({low:.2f} to {high:.2f}){more}"


def main() -> None:
    with torch.no_grad():
        lines = list(rows())
    rewrite(PAGE, "claims", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
