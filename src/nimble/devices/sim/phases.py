"""Which part of a training step a task belongs to: eager PyTorch calls each part in another way."""

from __future__ import annotations

from enum import IntEnum

from nimble.graph import Graph, Role


class Phase(IntEnum):
    FORWARD = 0
    BACKWARD = 1
    """Called by autograd."""
    UPDATE = 2
    """Called by the optimizer, for one parameter after the other."""
    ABSENT = 3
    """No call of eager's: it writes states where they lie, and a trace writes them at its end."""


def phases(graph: Graph, numbers: int | None = None) -> list[Phase]:
    """The phase of every task. `numbers` is the input with the optimizer's numbers, if this is a
    training step: whatever depends on them is part of the update."""
    after = set() if numbers is None else {numbers}
    found = []
    back = False
    for task in graph.tasks:
        back = back or (numbers is not None and "_backward" in task.op)
        reads = {graph.content(v).id for v in task.reads}
        if _is_absent(graph, task.op, task.writes):
            phase = Phase.ABSENT
        elif reads & after:
            phase = Phase.UPDATE
        else:
            phase = Phase.BACKWARD if back else Phase.FORWARD
        if reads & after:
            after.update(graph.content(v).id for v in task.writes)
        found.append(phase)
    return found


def _is_absent(graph: Graph, op: str, writes: tuple[int, ...]) -> bool:
    into_state = any(graph[graph.homes[v]].role is Role.STATE for v in writes)
    return op.startswith("aten.copy.") or (op.startswith("aten.copy_.") and into_state)
