"""Channels last: images lie in memory pixel by pixel, all channels of a pixel together."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Graph, Role, Task, Value, contiguous_strides

_HEADS = {"aten.convolution.default"}
_FREE = {
    "aten.max_pool2d_with_indices.default",
    "aten.avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten.cat.default",
    "aten.constant_pad_nd.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten.upsample_nearest2d.vec",
    "aten.upsample_bilinear2d.vec",
    "aten.native_group_norm.default",
}


def lay_channels_last(graph: Graph, is_pointwise: frozenset[str]) -> Graph:
    """Give 4-D intermediates that convolutions write or read strides with the channels innermost.

    What a task computes does not depend on the strides of its operands, so only values change; a
    value whose views could not be told in the new strides keeps its old ones.
    """
    if not any(task.op in _HEADS for task in graph.tasks):
        return graph
    values = list(graph.values)
    views: dict[int, list[Value]] = {}
    for value in graph.values:
        if value.base is not None:
            views.setdefault(value.base, []).append(value)
    kept = {graph.homes[v] for v in graph.outputs}
    kept |= {graph.homes[v.id] for v in graph.values if v.overwrites is not None}
    for task in graph.tasks:
        if task.op not in _HEADS and task.op not in _FREE and task.op not in is_pointwise:
            continue
        for v in task.writes:
            value = graph[v]
            if not _is_image(value) or v in kept:
                continue
            strides = channels_last(value.shape)
            moved = [_moved(view, value, strides) for view in views.get(v, ())]
            found = [view for view in moved if view is not None]
            if len(found) == len(moved):
                values[v] = replace(value, strides=strides)
                for view in found:
                    values[view.id] = view
    return replace(graph, values=tuple(values))


def _is_image(value: Value) -> bool:
    return (
        value.is_root
        and value.role is Role.INTERMEDIATE
        and len(value.shape) == 4
        and value.numel > 0
        and value.strides == contiguous_strides(value.shape)
    )


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(N, C, H, W) → strides with C innermost; any number of spatial dimensions."""
    batch, channels, *space = shape
    inner = contiguous_strides((batch, *space, channels))
    return (inner[0], inner[-1], *inner[1:-1])


def _moved(view: Value, base: Value, strides: tuple[int, ...]) -> Value | None:
    """The view after its base, which was contiguous, has been given other strides."""
    if view.dtype is not base.dtype:
        return None
    steps = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        step = 0 if size == 1 or stride == 0 else _step(size, stride, base, strides)
        if step is None:
            return None
        steps.append(step)
    offset, rest = 0, view.offset // base.dtype.itemsize
    for old, new in zip(base.strides, strides, strict=True):
        index, rest = divmod(rest, old)
        offset += index * new
    # The stride of a dimension of one element means nothing; let it look contiguous where it can.
    return replace(view, strides=_tidy(view, steps), offset=offset * base.dtype.itemsize)


def _step(size: int, stride: int, base: Value, strides: tuple[int, ...]) -> int | None:
    """What a step along a dimension of a view is in the new strides, if it is always the same."""
    for d in range(len(base.shape)):
        old = base.strides[d]
        if base.shape[d] == 1 or old > stride or stride % old:
            continue
        times = stride // old
        if (size - 1) * times < base.shape[d]:
            return times * strides[d]
        # Several dimensions of the base as one: whole ones, that lie as one in the new strides too.
        if times != 1:
            return None
        covered, at = base.shape[d], d
        while covered < size:
            at -= 1
            if at < 0:
                return None
            if base.shape[at] == 1:
                continue
            if strides[at] != strides[d] * covered:
                return None
            covered *= base.shape[at]
        return strides[d] if covered == size else None
    return None


def _tidy(view: Value, steps: list[int]) -> tuple[int, ...]:
    tidy, inner = [], 1
    for size, stride, step in reversed(list(zip(view.shape, view.strides, steps, strict=True))):
        alone = size == 1
        tidy.append(inner if alone else (0 if stride == 0 else step))
        inner = tidy[-1] * size if not alone and stride else inner
    return tuple(reversed(tidy))


def reads_images(task: Task) -> bool:
    return task.op in _HEADS
