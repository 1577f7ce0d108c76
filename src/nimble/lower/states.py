"""New contents of a state are computed where the state lies."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Edit, Graph, Ref, Role, Task
from nimble.lower.program import Program
from nimble.rewrite.updates import copied_states


def write_states(graph: Graph) -> Graph:
    """Let a pointwise task write into a state what would be copied there, where nothing that comes
    after it looks at the old contents. It reads an element before it writes that element."""
    edit = Edit(graph)
    tasks: list[Task | None] = list(graph.tasks)
    last_read = _last_reads(graph)
    for number, maker, memory, contents in copied_states(graph):
        # Contents lie in one state. Into others that get the same they are copied from there.
        if edit.values[contents].base is not None:
            continue
        if not _may_write(graph, number, maker, memory, contents):
            continue
        if max(last_read[memory] - {number}, default=-1) > maker:
            continue
        new, made = graph.tasks[number].writes[0], tasks[maker]
        assert made is not None
        ids = {contents: new}
        tasks[maker] = replace(
            made,
            writes=tuple(ids.get(v, v) for v in made.writes),
            results=tuple(None if v is None else ids.get(v, v) for v in made.results),
        )
        tasks[number] = None
        edit.alias(contents, new)
    edit.tasks = [task for task in tasks if task is not None]
    return edit.done() if len(edit.tasks) < len(tasks) else graph


def _may_write(graph: Graph, copy: int, maker: int, memory: int, contents: int) -> bool:
    old, new = graph[memory], graph[contents]
    return (
        graph.tasks[maker].op == "nimble.pointwise"
        and old.base is None
        and old.overwrites is None
        and graph[graph.tasks[copy].writes[0]].overwrites == memory
        and new.is_root
        and new.role is Role.INTERMEDIATE
        and (old.dtype, old.shape, old.strides) == (new.dtype, new.shape, new.strides)
        # The task may read the state as it lies, element by element, and no otherwise.
        and all(
            graph[v].base is None for v in graph.tasks[maker].reads if graph.content(v).id == memory
        )
        and not _reads_late(graph.tasks[maker], memory, contents)
        and not any(graph.content(v).id in (contents, memory) for v in graph.outputs)
    )


def _reads_late(task: Task, memory: int, contents: int) -> bool:
    """Whether a program reads the old contents after the instruction that makes the new ones, which
    a kernel stores at once."""
    program = Program.of(task)
    after = program.outputs[task.writes.index(contents)] + 1 - program.inputs
    old = {place for place, arg in enumerate(task.args) if arg == Ref(memory)}
    return any(
        isinstance(o, int) and o in old
        for _, operands in program.instructions[max(after, 0) :]
        for o in operands
    )


def _last_reads(graph: Graph) -> dict[int, set[int]]:
    """Root → the tasks that read it, through any view."""
    found: dict[int, set[int]] = {root.id: set() for root in graph.roots()}
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            found.setdefault(graph.content(v).id, set()).add(t)
    return found
