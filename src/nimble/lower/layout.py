"""Channels last: images lie in memory pixel by pixel, all channels of a pixel together."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from nimble.graph import Graph, Role, Task, Value, contiguous_strides
from nimble.lower.views import moved as moved_view

_BACKWARD = "aten.convolution_backward.default"
_HEADS = {"aten.convolution.default", _BACKWARD}
_FREE = {
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten.cat.default",
    "aten.constant_pad_nd.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_bilinear2d.default",
    "aten._upsample_nearest_exact2d.default",
    "aten.native_group_norm.default",
    "aten._native_batch_norm_legit.no_stats",
    "nimble.gradient_sums",
    "nimble.moments",
}


_ALONG_THE_LAST = {"aten.native_layer_norm.default", "nimble.layer_norm", "nimble.rms_norm"}
"""Their kernels want the elements of the last dimension side by side."""
_ANY_STRIDES = {"aten._softmax.default", "aten._log_softmax.default", "aten._to_copy.default"}


def lay_channels_last(graph: Graph, is_pointwise: frozenset[str]) -> Graph:
    """Give intermediates that convolutions write or read strides with the channels innermost, and
    those between them.

    What a task computes does not depend on the strides of its operands, so only values change; a
    value whose views could not be told in the new strides keeps its old ones.
    """
    follow = _HEADS | _FREE | is_pointwise
    images = _images(graph, follow)
    values = list(graph.values)
    views: dict[int, list[Value]] = {}
    for value in graph.values:
        if value.base is not None:
            views.setdefault(value.base, []).append(value)
    kept = {graph.homes[v] for v in graph.outputs}
    kept |= {graph.homes[v.id] for v in graph.values if v.overwrites is not None}
    kept |= _of_particular_readers(graph, follow)
    for task in graph.tasks:
        for v in _written(task) if task.op in follow else ():
            value = graph[v]
            if v not in images or v in kept or not _is_image(value):
                continue
            strides = channels_last(value.shape)
            moved = [moved_view(view, value, strides) for view in views.get(v, ())]
            found = [view for view in moved if view is not None]
            if len(found) == len(moved):
                values[v] = replace(value, strides=strides)
                for view in found:
                    values[view.id] = view
    return replace(graph, values=tuple(values))


def _images(graph: Graph, follow: Set[str]) -> set[int]:
    """What convolutions read and write, and what is computed with it by tasks that follow."""
    touched = [
        {graph.content(v).id for v in (*_read(task), *_written(task)) if _may_follow(graph[v])}
        for task in graph.tasks
        if task.op in follow
    ]
    heads = (task for task in graph.tasks if task.op in _HEADS)
    found = {
        graph.content(v).id
        for task in heads
        for v in (*_read(task), *_written(task))
        if _may_follow(graph[v])
    }
    before = -1
    while len(found) > before:
        before = len(found)
        for values in touched:
            if not found.isdisjoint(values):
                found |= values
    return found


def _read(task: Task) -> tuple[int, ...]:
    """What it reads that may be an image; weights are none."""
    if task.op not in _HEADS:
        return task.reads
    return task.reads[: 2 if task.op == _BACKWARD else 1]


def _written(task: Task) -> tuple[int, ...]:
    """What it writes that may be an image; gradients of weights are none."""
    if task.op != _BACKWARD:
        return task.writes
    return () if task.results[0] is None else (task.results[0],)


def _may_follow(value: Value) -> bool:
    """An image; or a sequence or volume that is no view: a view of one is often its transposed, as
    in networks that use both convolutions and matrices."""
    return len(value.shape) == 4 or (len(value.shape) in (3, 5) and value.is_root)


def _of_particular_readers(graph: Graph, follow: Set[str]) -> set[int]:
    """What operators read that count on its strides."""
    return {
        graph.content(v).id
        for task in graph.tasks
        if task.op not in follow
        for v in task.reads
        if (
            graph[v].strides[-1:] == (1,)
            if task.op in _ALONG_THE_LAST
            else counts_on_strides(task.op)
        )
    }


def counts_on_strides(op: str) -> bool:
    """Whether this is an internal operator of PyTorch's. They may count on strides that whoever
    calls them in PyTorch has made sure of, as those of attention and of recurrent layers do, and
    the gradient of group norm."""
    return op.startswith(("aten._", "aten.native_", "aten.mkldnn_")) and op not in _ANY_STRIDES


def _is_image(value: Value) -> bool:
    return (
        value.is_root
        and value.role is Role.INTERMEDIATE
        and len(value.shape) in (3, 4, 5)
        and value.numel > 0
        and value.strides == contiguous_strides(value.shape)
    )


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(N, C, H, W) → strides with C innermost; any number of spatial dimensions."""
    batch, channels, *space = shape
    inner = contiguous_strides((batch, *space, channels))
    return (inner[0], inner[-1], *inner[1:-1])
