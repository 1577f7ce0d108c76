"""Zeros around an image: a convolution sees them without a copy."""

from __future__ import annotations

from nimble.graph import Ref, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening, ints
from nimble.rewrite.operators import arguments

PAD = "aten.constant_pad_nd.default"


def taken_over(opening: Opening, x: Ref) -> tuple[Ref, tuple[int, ...]]:
    """What a convolution may read in the place of a padded tensor, and the padding before its first
    row and column. That after the last follows from the size of the result."""
    nothing = (0,) * (len(opening.value(x).shape) - 2)
    graph = opening.graph
    writer = graph.writer.get(x.id)
    if writer is None or graph.tasks[writer].op != PAD:
        return x, nothing
    given = arguments(graph.tasks[writer])
    before, after = _sides(given, len(graph[x.id].shape))
    whole, value = given["self"], given["value"]
    around = any((*before[:2], *after[:2])) or min(*before, *after) < 0
    if around or value != 0 or not isinstance(whole, Ref):
        return x, nothing
    return whole, before[2:]


def _sides(given: Given, dims: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """PyTorch gives (before, after) of the last dimension first."""
    pad = ints(given["pad"])
    rest = (0,) * (dims - len(pad) // 2)
    return (*rest, *pad[-2::-2]), (*rest, *pad[::-2])


def _pad(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    x, value, result = given["self"], given["value"], task.results[0]
    if not isinstance(x, Ref) or result is None or not isinstance(value, int | float):
        return None
    if 0 in (opening.value(x).numel, opening.edit.values[result].numel):
        return None
    before, after = _sides(given, len(opening.value(x).shape))
    if min((*before, *after), default=0) < 0 or len(before) > 6:
        return None
    kwargs = (("before", before), ("value", float(value)))
    return [call(task.name, "nimble.pad", (x,), (result,), kwargs, task.origin)]


CONVERSIONS: dict[str, Conversion] = {PAD: _pad}
