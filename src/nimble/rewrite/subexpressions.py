"""Compute once what several tasks compute alike."""

from __future__ import annotations

from collections.abc import Hashable

from nimble.graph import Arg, Edit, Graph, Ref, Role, Task
from nimble.rewrite.operators import is_uninitialised, pure_tasks


def merge_subexpressions(graph: Graph) -> Graph:
    """Let tasks that call the same op on the same contents share the results of the first.

    Two results that are both handed to the caller stay two tensors, as they are in eager.
    """
    edit = Edit(graph)
    pure = pure_tasks(graph)
    first: dict[Hashable, Task] = {}
    for t, task in enumerate(graph.tasks):
        if t not in pure or is_uninitialised(task.op):
            edit.tasks.append(task)
            continue
        known = first.setdefault(_key(edit, task), task)
        pairs = [
            (mine, theirs)
            for mine, theirs in zip(task.results, known.results, strict=True)
            if mine is not None and theirs is not None
        ]
        if known is task or any(_both_escape(edit, *pair) for pair in pairs):
            edit.tasks.append(task)
            continue
        for mine, theirs in pairs:
            if edit.values[mine].role is Role.OUTPUT:
                edit.set_role(theirs, Role.OUTPUT)
            edit.alias(mine, theirs)
    return edit.done()


def _both_escape(edit: Edit, mine: int, theirs: int) -> bool:
    return edit.values[mine].role is Role.OUTPUT and edit.values[theirs].role is Role.OUTPUT


def _key(edit: Edit, task: Task) -> Hashable:
    results = tuple(
        None if v is None else (edit.values[v].dtype, edit.values[v].shape, edit.values[v].strides)
        for v in task.results
    )
    kwargs = tuple((name, _same(edit, arg)) for name, arg in task.kwargs)
    return task.op, task.kernel, tuple(_same(edit, arg) for arg in task.args), kwargs, results


def _same(edit: Edit, arg: Arg) -> Hashable:
    """Equal for two arguments if and only if the op sees the same thing."""
    if isinstance(arg, Ref):
        value, content = edit.values[arg.id], edit.content(arg.id)
        return Ref, content.id, value.offset, value.dtype, value.shape, value.strides
    if isinstance(arg, tuple):
        return tuple, tuple(_same(edit, item) for item in arg)
    # 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0.
    return type(arg), repr(arg)
