"""Rows of a table, by their numbers."""

from __future__ import annotations

from nimble.graph import Arg, Ref, Task, is_dense
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening


def _embedding(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    return _gather(opening, task, given["weight"], given["indices"], 0, wraps=False)


def _index_select(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    return _gather(opening, task, given["self"], given["index"], given["dim"], wraps=False)


def _index(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """x[:, …, indices]: one tensor of indices, all of the other dimensions."""
    indices = given["indices"]
    if not isinstance(indices, tuple):
        return None
    found = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(found) != 1:
        return None
    ((dim, index),) = found
    return _gather(opening, task, given["self"], index, dim, wraps=True)


def _gather(
    opening: Opening, task: Task, table: Arg, indices: Arg, dim: Arg, *, wraps: bool
) -> list[Task] | None:
    if not isinstance(table, Ref) or not isinstance(indices, Ref) or not isinstance(dim, int):
        return None
    index, value = opening.value(indices), opening.value(table)
    if not value.shape or 0 in (index.numel, value.numel) or not is_dense(index):
        return None
    if list(index.strides) != sorted(index.strides, reverse=True):
        return None
    kwargs = (("dim", dim % len(value.shape)), ("wraps", wraps))
    return [call(task.name, "nimble.gather", (table, indices), task.results, kwargs, task.origin)]


CONVERSIONS: dict[str, Conversion] = {
    "aten.embedding.default": _embedding,
    "aten.index.Tensor": _index,
    "aten.index_select.default": _index_select,
}
