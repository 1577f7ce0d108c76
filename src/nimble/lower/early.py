"""States are updated as soon as they may be: what they are updated with is then still in a cache,
and its memory is free for others."""

from __future__ import annotations

from nimble.graph import DType, Graph, Role, dependencies, in_order


def update_early(graph: Graph) -> Graph:
    """The same tasks, those that write a state directly after the last task that they need."""
    updates = _updates(graph)
    if not updates:
        return graph
    return graph.with_tasks(graph.tasks[t] for t in in_order(dependencies(graph), updates))


def has_updates(graph: Graph) -> bool:
    return bool(_updates(graph))


def _updates(graph: Graph) -> set[int]:
    return {
        t
        for t, task in enumerate(graph.tasks)
        for v in task.writes
        if graph[v].role is Role.STATE and graph[v].dtype is not DType.TOKEN
    }
