"""Measures what README.md claims and writes it there, between the marks. `make figures`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import calls
import marks
import torch

import nimble
from nimble import zoo
from nimble.capture import Target, capture
from nimble.capture.structure import flatten
from nimble.devices.cpu import this_cpu
from nimble.rewrite import rewrite

README = Path(__file__).parents[1] / "README.md"
NETWORKS = ["mobilenet_v2", "resnet50", "googlenet", "inception_v3", "nasnet_a_mobile"]
NETWORKS += ["amoebanet", "darts", "bert_base"]


def networks() -> Iterator[str]:
    yield (
        "| network | tasks | chains | streams | waits | arena, 2 workers | / bound "
        "| bound in sequence | of all intermediates |"
    )
    yield "|---" * 9 + "|"
    for name in NETWORKS:
        model, args = zoo.build(name)
        tensors, structure = flatten((args, {}))
        graph = rewrite(capture(Target.of(model), tensors, structure, name).graph)[0]
        free = nimble.schedule(graph)
        engine = nimble.compile(model, args)
        bound = nimble.schedule(engine.plans[0].graph, streams=2)
        yield (
            f"| {name} | {len(graph.tasks)} | {free.decision.chains} | {len(free.streams)} "
            f"| {len(free.waits)} | {bound.arena_bytes / 1e6:.2f} MB "
            f"| {bound.arena_bytes / bound.arena_lower_bound:.3f} "
            f"| {bound.sequential_lower_bound / 1e6:.2f} MB "
            f"| {100 * bound.arena_bytes / bound.intermediates_bytes:.1f} % |"
        )


def main() -> None:
    where = (
        f"Measured by `make figures` on {this_cpu()}, {torch.get_num_threads()} cores, "
        f"torch {torch.__version__}, Python {platform.python_version()}: "
        "median, and the middle nine tenths (for throughput: all five runs)."
    )
    lines = [
        where,
        "",
        "| cost of a replay | |",
        "|---|---|",
        *(f"| {what} | {much} |" for what, much in calls.figures()),
        "",
        "Streams at full concurrency with the fewest waits; the arena on at most two streams:",
        "",
        *networks(),
    ]
    marks.rewrite(README, "figures", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
