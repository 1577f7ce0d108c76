"""States are updated as soon as they may be: what they are updated with is then still in a cache,
and its memory is free for others. But after whatever may fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nimble.graph import DType, Graph, Role, dependencies, in_order

_MAY_FAIL = (
    "assert", "bernoulli", "cholesky", "cross_entropy", "embedding", "gather", "index", "inverse",
    "linalg", "multinomial", "nll_loss", "take",
)  # fmt: skip
"""In the names of operators that look at the numbers they are given."""


def check_first(graph: Graph) -> Graph:
    """An update that eager makes after a task that may fail, as an index out of range makes it,
    waits for this task: what fails leaves as much undone as in eager."""
    updates = _updates(graph)
    checks = list(_checks(graph)) if updates else []
    if not checks:
        return graph
    gone = {value.overwrites for value in graph.values}
    needed: list[int] = []
    """Of every task those before it, as bits."""
    tasks = list(graph.tasks)
    for t, before in enumerate(dependencies(graph)):
        mine = 1 << t
        for b in before:
            mine |= needed[b]
        needed.append(mine)
        if t not in updates:
            continue
        awaited = [
            v
            for c, v in checks
            if c < t and not mine >> c & 1 and v not in gone and v not in tasks[t].reads
        ]
        tasks[t] = replace(tasks[t], reads=(*tasks[t].reads, *awaited))
    return graph.with_tasks(tasks)


def _checks(graph: Graph) -> Iterator[tuple[int, int]]:
    """Tasks that may fail, and what each makes. The same indices fail once."""
    known: set[int] = set()
    for t, task in enumerate(graph.tasks):
        if not any(word in task.op for word in _MAY_FAIL):
            continue
        indices = {graph.content(v).id for v in task.reads if _is_whole(graph[v].dtype)}
        if not indices or not indices <= known:
            known |= indices
            yield t, task.writes[0]


def _is_whole(dtype: DType) -> bool:
    return dtype.value.startswith(("int", "uint"))


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
