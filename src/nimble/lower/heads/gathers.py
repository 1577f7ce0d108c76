"""Rows of a table, by their numbers; and its gradient."""

from __future__ import annotations

from nimble.graph import Arg, Ref, Task, contiguous_strides, is_dense
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


def _embedding_gradient(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    gradient, indices = given["grad_output"], given["indices"]
    if given["scale_grad_by_freq"]:
        return None
    values = [opening.value(arg) for arg in (gradient, indices)]
    if any(value.strides != contiguous_strides(value.shape) for value in values):
        return None
    kwargs = (("rows", given["num_weights"]), ("first", 0), ("skipped", given["padding_idx"]))
    args = (gradient, indices)
    return [call(task.name, "nimble.scatter", args, task.results, kwargs, task.origin)]


CONVERSIONS: dict[str, Conversion] = {
    "aten.embedding.default": _embedding,
    "aten.embedding_dense_backward.default": _embedding_gradient,
    "aten.index.Tensor": _index,
    "aten.index_select.default": _index_select,
}
