"""Updates of a model's memory where it lies, such as one row of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nimble.graph import Edit, Graph, Ref, Role, Task

_IN_PLACE = {
    f"aten.{name}.{overload}": f"aten.{name}_.{overload}"
    for name, overload in (
        ("index_copy", "default"),
        ("index_add", "default"),
        ("index_put", "default"),
        ("index_fill", "int_Scalar"),
        ("scatter", "src"),
        ("scatter", "value"),
        ("scatter_add", "default"),
        ("masked_fill", "Scalar"),
        ("masked_fill", "Tensor"),
    )
}
"""What changes a part of its first argument, and leaves the rest as it was."""
FUNCTIONAL = {in_place: functional for functional, in_place in _IN_PLACE.items()}
"""The operators that this pass brings in, and those that compute the same anew."""


def update_in_place(graph: Graph) -> Graph:
    """Turn `new = index_copy(cache, ...); copy_(cache, new)` into `index_copy_(cache, ...)`, where
    nothing looks at the old contents afterwards."""
    edit = Edit(graph)
    changed: dict[int, Task] = {}
    copies: set[int] = set()
    for number, maker, memory, contents in copied_states(graph):
        if not _may_update(graph, maker, number, memory, contents):
            continue
        new = graph.tasks[number].writes[0]
        changed[maker] = replace(
            graph.tasks[maker],
            op=_IN_PLACE[graph.tasks[maker].op],
            writes=(new,),
            results=(new,),
        )
        copies.add(number)
        edit.alias(contents, new)
    tasks = enumerate(graph.tasks)
    edit.tasks = [changed.get(n, task) for n, task in tasks if n not in copies]
    return edit.done() if copies else graph


def copied_states(graph: Graph) -> Iterator[tuple[int, int, int, int]]:
    """Tasks that copy what another task makes into a state: the copy, the maker, the state and the
    new contents."""
    for number, task in enumerate(graph.tasks):
        if task.op != "aten.copy_.default" or len(task.args) != 2:
            continue
        memory, contents = task.args
        if isinstance(memory, Ref) and isinstance(contents, Ref):
            maker = graph.writer.get(contents.id)
            if maker is not None:
                yield number, maker, memory.id, contents.id


def _may_update(graph: Graph, maker: int, copy: int, memory: int, contents: int) -> bool:
    """Whether the task that makes new contents can write them over the old ones."""
    task, old, new = graph.tasks[maker], graph[memory], graph[contents]
    whole = graph[graph.tasks[copy].writes[0]]
    return (
        task.op in _IN_PLACE
        and task.args[0] == Ref(memory)
        and old.base is None
        and whole.overwrites == memory
        and new.is_root
        and new.role is Role.INTERMEDIATE
        and (old.dtype, old.shape, old.strides) == (new.dtype, new.shape, new.strides)
        and [graph.content(v).id for v in task.reads].count(memory) == 1
        and not any(graph.content(v).id == contents for v in graph.outputs)
        and not any(
            graph.content(v).id == memory
            for n, later in enumerate(graph.tasks)
            if n > maker and n != copy
            for v in later.reads
        )
    )
