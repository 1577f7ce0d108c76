"""The rewriting stage: its passes, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from nimble.graph import Graph
from nimble.rewrite.attention import straighten_attention
from nimble.rewrite.batch_norm import fold_batch_norm
from nimble.rewrite.constants import fold_constants
from nimble.rewrite.dead import remove_dead_tasks
from nimble.rewrite.fills import free_fills
from nimble.rewrite.noops import remove_noops
from nimble.rewrite.subexpressions import merge_subexpressions
from nimble.rewrite.updates import update_in_place

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    remove_dead_tasks,
    remove_noops,
    free_fills,
    merge_subexpressions,
    fold_constants,
    fold_batch_norm,
    remove_dead_tasks,
    update_in_place,
    straighten_attention,
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass did: the number of tasks before and after it, and which ops came and went."""

    name: str
    tasks_before: int
    tasks_after: int
    detail: str

    @staticmethod
    def of(name: str, before: Graph, after: Graph) -> Step:
        return Step(name, len(before.tasks), len(after.tasks), detail(before, after))


def rewrite(graph: Graph) -> tuple[Graph, tuple[Step, ...]]:
    """The same function in fewer tasks, for any device, and the steps that led there."""
    steps = []
    for change in PASSES:
        before, graph = graph, change(graph)
        name = change.__name__.replace("_", " ")
        steps.append(Step.of(name, before, graph))
    return graph, tuple(steps)


def detail(before: Graph, after: Graph) -> str:
    """`12 fewer aten.clone.default; 3 more tasks ahead of time`; empty if nothing changed."""
    old, new = (Counter(task.op for task in graph.tasks) for graph in (before, after))
    parts = [f"{n} fewer {op}" for op, n in (old - new).most_common()]
    parts += [f"{n} more {op}" for op, n in (new - old).most_common()]
    ahead = _tasks_ahead(after) - _tasks_ahead(before)
    if ahead:
        parts.append(f"{abs(ahead)} {'more' if ahead > 0 else 'fewer'} tasks ahead of time")
    return "; ".join(parts)


def _tasks_ahead(graph: Graph) -> int:
    return 0 if graph.prologue is None else len(graph.prologue.tasks)
