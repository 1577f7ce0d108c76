"""Operators that have a kernel of our own, with their weights packed ahead of time.

A `nimble.` task says all that its kernel must know in plain arguments; weights are packed by tasks
that depend on parameters only, so that they move to the prologue.
"""

from __future__ import annotations

from nimble.graph import Graph
from nimble.lower.heads import (
    attention,
    convolutions,
    gathers,
    images,
    matrices,
    norms,
    padding,
    reductions,
)
from nimble.lower.heads.opening import Conversion, Opening, is_image
from nimble.lower.kernels import Supported
from nimble.rewrite import fold_constants, remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks

__all__ = ["is_image", "open_heads"]

_CONVERSIONS: dict[str, Conversion] = {
    **attention.CONVERSIONS,
    **convolutions.CONVERSIONS,
    **gathers.CONVERSIONS,
    **images.CONVERSIONS,
    **matrices.CONVERSIONS,
    **norms.CONVERSIONS,
    **padding.CONVERSIONS,
    **reductions.CONVERSIONS,
}


_POOLINGS = ("aten.max_pool2d_with_indices_backward.default",)
_STATISTICS = ("nimble.gradient_sums", "nimble.moments")


def open_heads(graph: Graph, supported: Supported) -> Graph:
    """Replace operators by `nimble.` ones wherever a kernel of ours computes the same."""
    opened = _opened(graph, supported)
    # The gradient of a pooling does without the indices for which it could not be opened.
    again = any(task.op in _POOLINGS for task in graph.tasks)
    return _opened(opened, supported) if again else opened


def _opened(graph: Graph, supported: Supported) -> Graph:
    opening = Opening(graph)
    pure = pure_tasks(graph)
    for t, task in enumerate(graph.tasks):
        convert = _CONVERSIONS.get(task.op)
        made = None
        if convert is not None and t in pure and opening.has_dtypes_for(task):
            opening.begin()
            made = convert(opening, task, arguments(task))
            if made is None or not all(
                supported(opening.edit.values, t) for t in made if t.op.startswith("nimble.")
            ):
                opening.give_up()
                made = None
        if task.op in _STATISTICS and not supported(opening.edit.values, task):
            made = opening.with_images(task)
        opening.edit.tasks.extend([task] if made is None else made)
    # Padding that a convolution took over is dead.
    return fold_constants(remove_dead_tasks(opening.edit.done()))
