"""Builds a small graph by hand and schedules it: no model, no device, no weights.

A stem feeds two branches that do not depend on each other, a sum joins them, a head follows. On two
streams the branches run side by side; the schedule says who waits for whom and where every value
lies. The sum takes the place of the stem, which nobody reads any more.
"""

from __future__ import annotations

import nimble
from nimble.graph import DType, Graph, Ref, Role, Task, Value, contiguous_strides, verify

SHAPE = (1, 64, 56, 56)
NAMES = ("image", "stem", "left", "right", "sum", "head")
COSTS = {"stem": 40_000, "left": 90_000, "right": 80_000, "sum": 5_000, "head": 30_000}


def fork_and_join() -> Graph:
    roles = (Role.INPUT, *[Role.INTERMEDIATE] * 4, Role.OUTPUT)
    values = tuple(
        Value(i, name, role, DType.FLOAT32, SHAPE, contiguous_strides(SHAPE))
        for i, (name, role) in enumerate(zip(NAMES, roles, strict=True))
    )
    image, stem, left, right, total, head = range(6)
    tasks = (
        task("stem", "aten.relu.default", (image,), stem),
        task("left", "aten.sigmoid.default", (stem,), left),
        task("right", "aten.tanh.default", (stem,), right),
        task("sum", "aten.add.Tensor", (left, right), total),
        task("head", "aten.relu.default", (total,), head),
    )
    return Graph("fork and join", values, tasks, inputs=(image,), outputs=(head,))


def task(name: str, op: str, reads: tuple[int, ...], writes: int) -> Task:
    return Task(
        name,
        op,
        args=tuple(Ref(value) for value in reads),
        reads=reads,
        writes=(writes,),
        results=(writes,),
        cost=COSTS[name],
    )


def main() -> None:
    graph = fork_and_join()
    verify(graph)
    plan = nimble.schedule(graph, streams=2)
    for number, stream in enumerate(plan.streams):
        print(f"stream {number}:", " → ".join(graph.tasks[t].name for t in stream))
    for wait in plan.waits:
        print(f"{graph.tasks[wait.task].name} waits for {graph.tasks[wait.on].name}")
    for value, offset in zip(graph.values, plan.offsets, strict=True):
        if offset is not None:
            print(f"{value.name} at byte {offset}")
    print(f"arena: {plan.arena_bytes} bytes, of {plan.intermediates_bytes} without sharing")
    decision = plan.decision
    print(
        f"predicted: {decision.predicted_ns / 1000:.0f} us, "
        f"{decision.sequential_ns / 1000:.0f} us in one stream ({decision.reason})"
    )


if __name__ == "__main__":
    main()
