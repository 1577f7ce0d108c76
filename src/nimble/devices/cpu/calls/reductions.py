"""Along dimensions: sums and the like, softmax, running sums, the largest and where they are."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.graph import Task, Value, refs
from nimble.lower import Values


def _reduce(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    over = given["dims"]
    kept = [d for d in range(len(source.shape)) if d not in over]
    if len(kept) > 5 or len(over) > 5:
        return None
    ints = [len(kept), *(source.shape[d] for d in kept), *_without(result, source, over)]
    ints += [*(source.strides[d] for d in kept)]
    ints += [len(over), *(source.shape[d] for d in over), *(source.strides[d] for d in over)]
    return NativeCall(f"{given['kind']}.float32", (y, x), tuple(ints))


def _without(value: Value, like: Value, over: tuple[int, ...]) -> list[int]:
    """The strides of a value that has been reduced `over` some dimensions, of the others."""
    if len(value.shape) < len(like.shape):
        return list(value.strides)
    return [s for d, s in enumerate(value.strides) if d not in over]


def _argument(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    source, result, dim = graph[x], graph[task.writes[0]], given["dim"]
    strides = [_without(result, source, (dim,)), _without(source, source, (dim,))]
    rows = _rows(source, dim, *strides)
    if rows is None:
        return None
    ints = (source.shape[dim], source.strides[dim], *rows)
    return NativeCall(f"{given['kind']}.float32", (task.writes[0], x), ints)


def _rows(whole: Value, dim: int, *strides: list[int]) -> list[int] | None:
    """All dimensions but one, over which a kernel repeats."""
    sizes = [n for d, n in enumerate(whole.shape) if d != dim]
    if len(sizes) > 5:
        return None
    return [len(sizes), *sizes, *(s for each in strides for s in each)]


def _softmax(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    y, dim = task.writes[0], given["dim"]
    source, result = graph[x], graph[y]
    if source.shape[dim] > 1 and not source.strides[dim] == result.strides[dim] == 1:
        return None
    outer = [_without(value, source, (dim,)) for value in (result, source)]
    rows = _rows(source, dim, *outer)
    if rows is None:
        return None
    return NativeCall(f"{given['kind']}.float32", (y, x), (source.shape[dim], *rows))


def _cumsum(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    y, dim = task.writes[0], given["dim"]
    source, result = graph[x], graph[y]
    rows = _rows(source, dim, *(_without(v, source, (dim,)) for v in (result, source)))
    if rows is None:
        return None
    ints = (source.shape[dim], result.strides[dim], source.strides[dim], *rows)
    return NativeCall("cumsum.float32", (y, x), ints)


def _topk(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    source, dim = graph[x], given["dim"]
    if len(task.writes) != 2:
        return None
    values, places = (graph[v] for v in task.writes)
    each = (values, places, source)
    rows = _rows(source, dim, *(_without(value, source, (dim,)) for value in each))
    if rows is None:
        return None
    ints = (source.shape[dim], values.shape[dim], *(v.strides[dim] for v in each))
    return NativeCall("topk.float32", (*task.writes, x), (*ints, int(given["largest"]), *rows))


CALLS: dict[str, Make] = {
    "nimble.argument": _argument,
    "nimble.cumsum": _cumsum,
    "nimble.reduce": _reduce,
    "nimble.softmax": _softmax,
    "nimble.topk": _topk,
}
