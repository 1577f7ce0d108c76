"""Images made smaller and larger."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.devices.cpu.geometry import image
from nimble.graph import DType, Task, Value, refs
from nimble.lower import Values
from nimble.lower.heads import is_image


def _sizes(graph: Values, task: Task) -> list[int] | None:
    """What all of these kernels begin with."""
    (x,) = refs(task.args)
    source, result = graph[x], graph[task.writes[0]]
    if not is_image(source) or not is_image(result) or len(source.shape) != 4:
        return None
    return [*source.shape, *result.shape[2:], *image(result), *image(source)]


def _pool(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    ints = _sizes(graph, task)
    (kh, kw), (ph, pw) = given["kernel"], given["padding"]
    (sh, sw), (dh, dw) = given["stride"], given["dilation"]
    if ints is None or ph > kh // 2 or pw > kw // 2:
        return None
    ints += [kh, sh, ph, dh, kw, sw, pw, dw]
    mean = given["kind"] == "mean"
    if mean:
        by_area = given["counts_padding"] and not given["divisor"]
        if by_area and not _windows_fit(graph[x], graph[task.writes[0]], given):
            return None
        ints += [int(given["counts_padding"]), given["divisor"]]
    kernel = f"{'avg' if mean else 'max'}_pool_nhwc.float32"
    return NativeCall(kernel, (task.writes[0], x), tuple(ints))


def _pool_gradient(graph: Values, task: Task, given: Given) -> NativeCall | None:
    gradient, x = refs(task.args)
    (result,) = task.writes
    values = [graph[v] for v in (result, gradient, x)]
    (kh, kw), (ph, pw) = given["kernel"], given["padding"]
    (sh, sw), (dh, dw) = given["stride"], given["dilation"]
    if not all(is_image(value) and len(value.shape) == 4 for value in values):
        return None
    if any(value.dtype is not DType.FLOAT32 for value in values) or ph > kh // 2 or pw > kw // 2:
        return None
    ints = [*graph[x].shape, *graph[gradient].shape[2:], *image(graph[gradient]), *image(graph[x])]
    ints += [kh, sh, ph, dh, kw, sw, pw, dw, *image(graph[result])]
    return NativeCall("max_pool_gradient_nhwc.float32", (result, gradient, x), tuple(ints))


def _windows_fit(source: Value, result: Value, given: Given) -> bool:
    """Whether no window reaches beyond the padding, as one may with ceil_mode."""
    return all(
        (result.shape[2 + d] - 1) * given["stride"][d] + given["kernel"][d]
        <= source.shape[2 + d] + 2 * given["padding"][d]
        for d in range(2)
    )


def _adaptive_pool(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    ints = _sizes(graph, task)
    if ints is None:
        return None
    return NativeCall("adaptive_avg_pool_nhwc.float32", (task.writes[0], x), tuple(ints))


def _resample(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    ints = _sizes(graph, task)
    if ints is None:
        return None
    numbers = (*ints, given["first"], _MODES.index(given["mode"]))
    return NativeCall("resample_nhwc.float32", (task.writes[0], x), numbers, given["steps"])


_MODES = ("nearest", "exact", "bilinear", "bilinear_aligned")
"""As native/kernels/resample.h numbers them."""
CALLS: dict[str, Make] = {
    "nimble.adaptive_pool": _adaptive_pool,
    "nimble.pool": _pool,
    "nimble.pool_gradient": _pool_gradient,
    "nimble.resample": _resample,
}
