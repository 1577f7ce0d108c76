"""Compute ahead of time, in the prologue, what depends on parameters and constants only."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Edit, Graph, Role, Task, fresh
from nimble.graph.edit import renumber
from nimble.rewrite.operators import pure_tasks

_FIXED = (Role.PARAMETER, Role.CONSTANT)
_NAMED = (*_FIXED, Role.STATE, Role.INPUT)


def fold_constants(graph: Graph) -> Graph:
    """Move such tasks to the prologue; what other tasks read of them becomes a constant.

    A task that writes an output stays: the caller gets a new tensor at every call.
    """
    folded = _foldable(graph)
    if not folded:
        return graph
    edit = Edit(graph)
    edit.tasks = [task for t, task in enumerate(graph.tasks) if t not in folded]
    made = {v for t in folded for v in graph.tasks[t].writes}
    wanted = {graph.content(v).id for task in edit.tasks for v in task.reads} & made
    taken = {v.name for g in (graph, graph.prologue) if g for v in g.roots(*_NAMED)}
    names: dict[int, str] = {}
    for v in sorted(wanted):
        names[v] = fresh(graph[v].name, taken)
        taken.add(names[v])
        edit.set_role(v, Role.CONSTANT)
        edit.values[v] = replace(edit.values[v], name=names[v])
    edit.prologue = _extend(graph, [graph.tasks[t] for t in sorted(folded)], names)
    return edit.done()


def _foldable(graph: Graph) -> set[int]:
    pure = pure_tasks(graph)
    known = {v.id for v in graph.roots(*_FIXED)}
    shown = {graph.content(v).id for v in graph.outputs}
    folded: set[int] = set()
    for t, task in enumerate(graph.tasks):
        if (
            t in pure
            and all(graph.content(v).id in known for v in task.reads)
            and all(graph[v].role is Role.INTERMEDIATE and v not in shown for v in task.writes)
        ):
            folded.add(t)
            known.update(task.writes)
    return folded


def _extend(graph: Graph, tasks: list[Task], names: dict[int, str]) -> Graph:
    """The prologue with more tasks of `graph`, handing out the values in `names`."""
    old = graph.prologue or Graph(f"{graph.name}.prologue", (), (), (), ())
    edit = Edit(old)
    edit.tasks.extend(old.tasks)
    ids: dict[int, int] = {}
    roots = {v.name: v.id for v in old.roots(*_FIXED)}
    roots.update((old[v].name, v) for v in old.outputs)

    def place(v: int) -> int:
        if v in ids:
            return ids[v]
        value = graph[v]
        if value.base is not None:
            new = edit.add_view(
                value.name,
                place(value.base),
                value.shape,
                value.strides,
                value.offset,
                value.dtype,
            )
        elif value.role in _FIXED and value.name in roots:
            new = roots[value.name]
        else:
            new = edit.add_root(value.name, value.role, value.dtype, value.shape, value.strides)
        ids[v] = new
        return new

    taken = {task.name for task in old.tasks}
    for task in tasks:
        for v in (*task.reads, *task.writes):
            place(v)
        name = fresh(task.name, taken)
        taken.add(name)
        edit.tasks.append(replace(renumber(task, ids), name=name))
    for v, name in names.items():
        edit.set_role(ids[v], Role.OUTPUT)
        edit.values[ids[v]] = replace(edit.values[ids[v]], name=name)
        edit.outputs.append(ids[v])
    return edit.done()
