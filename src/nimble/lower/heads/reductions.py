"""Along dimensions: sums and the like, softmax, running sums, the largest and where they are."""

from __future__ import annotations

from nimble.graph import Arg, DType, Ref, Task, is_dense
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening, ints


def _reduce(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    x, dims = _floats(opening, given["self"]), given.get("dim", ())
    if x is None or given.get("dtype") is not None:
        return None
    rank = len(opening.value(x).shape)
    dims = ints(dims) if isinstance(dims, tuple) else ()
    over = tuple(sorted(d % rank for d in dims)) or tuple(range(rank))
    kwargs = (("dims", over), ("kind", _KINDS[task.op]))
    return [call(task.name, "nimble.reduce", (x,), task.results, kwargs, task.origin)]


def _extreme(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """max(dim) and min(dim): what is largest, and where."""
    x, dim = _floats(opening, given["self"]), given["dim"]
    if x is None or not isinstance(dim, int):
        return None
    dim %= len(opening.value(x).shape)
    values, places = task.results
    kind = task.op.split(".")[1]
    made: list[Task] = []
    if not opening.unread(values):
        kwargs: tuple[tuple[str, Arg], ...] = (("dims", (dim,)), ("kind", kind))
        made.append(call(task.name, "nimble.reduce", (x,), (values,), kwargs, task.origin))
    if not opening.unread(places):
        kwargs = (("dim", dim), ("kind", f"arg{kind}"))
        name = f"{task.name}.where" if made else task.name
        made.append(call(name, "nimble.argument", (x,), (places,), kwargs, task.origin))
    return made


def _argument(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """argmax and argmin, along a dimension or of all elements in their order."""
    x, dim = _floats(opening, given["self"]), given["dim"]
    if x is None:
        return None
    value = opening.value(x)
    if not isinstance(dim, int):
        if not is_dense(value) or list(value.strides) != sorted(value.strides, reverse=True):
            return None
        x = Ref(opening.edit.add_view(f"{value.name}.flat", x.id, (value.numel,), (1,)))
        dim = 0
    kwargs = (("dim", dim % len(opening.value(x).shape)), ("kind", task.op.split(".")[1]))
    return [call(task.name, "nimble.argument", (x,), task.results, kwargs, task.origin)]


def _softmax(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    return _along(opening, task, given["self"], given["dim"], kind=task.op.split(".")[1][1:])


def _running_sum(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    if given["dtype"] is not None:
        return None
    return _along(opening, task, given["self"], given["dim"], kind="cumsum")


def _top(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    if not given["k"]:
        return None
    return _along(opening, task, given["self"], given["dim"], largest=given["largest"])


def _along(opening: Opening, task: Task, x: Arg, dim: Arg, **kwargs: Arg) -> list[Task] | None:
    """One of the operators that work along one dimension."""
    x = _floats(opening, x)
    if x is None or not isinstance(dim, int):
        return None
    along = (("dim", dim % len(opening.value(x).shape)), *kwargs.items())
    return [call(task.name, _ALONG[task.op], (x,), task.results, along, task.origin)]


def _floats(opening: Opening, x: Arg) -> Ref | None:
    """The operand, if it has elements along a dimension, and those are float32."""
    if not isinstance(x, Ref):
        return None
    value = opening.value(x)
    return x if value.shape and value.numel and value.dtype is DType.FLOAT32 else None


_KINDS = {
    "aten.amax.default": "max",
    "aten.amin.default": "min",
    "aten.max.default": "max",
    "aten.mean.default": "mean",
    "aten.mean.dim": "mean",
    "aten.min.default": "min",
    "aten.sum.default": "sum",
    "aten.sum.dim_IntList": "sum",
}
_ALONG = {
    "aten._log_softmax.default": "nimble.softmax",
    "aten._softmax.default": "nimble.softmax",
    "aten.cumsum.default": "nimble.cumsum",
    "aten.topk.default": "nimble.topk",
}
CONVERSIONS: dict[str, Conversion] = {
    **dict.fromkeys(_KINDS, _reduce),
    "aten._log_softmax.default": _softmax,
    "aten._softmax.default": _softmax,
    "aten.argmax.default": _argument,
    "aten.argmin.default": _argument,
    "aten.cumsum.default": _running_sum,
    "aten.max.dim": _extreme,
    "aten.min.dim": _extreme,
    "aten.topk.default": _top,
}
