"""Remove what no output, state or draw of random numbers depends on."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import DType, Edit, Graph, Role


def remove_dead_tasks(graph: Graph) -> Graph:
    """Keep the tasks that write memory which outlives the replay, and those that feed them.

    A draw of random numbers stays even if nobody looks at it: it moves the generator.
    """
    live = {graph.homes[v] for v in graph.outputs}
    edit = Edit(graph)
    for task in reversed(graph.tasks):
        if not task.writes or any(_lasts(graph, v) or graph.homes[v] in live for v in task.writes):
            live.update(graph.homes[v] for v in task.reads)
            edit.tasks.append(task)
    edit.tasks.reverse()
    left = edit.done()
    if left.prologue is None:
        return left
    return replace(left, prologue=remove_dead_tasks(left.prologue))


def _lasts(graph: Graph, v: int) -> bool:
    home = graph[graph.homes[v]]
    return home.role in (Role.STATE, Role.INPUT) or home.dtype is DType.TOKEN
