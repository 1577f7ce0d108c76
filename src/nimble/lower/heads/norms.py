"""Normalisation over the last dimension, or over groups of channels."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.graph import Arg, Ref, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening, ints, is_image


def _layer_norm(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    x, shape, eps = given["input"], given["normalized_shape"], given["eps"]
    if not isinstance(x, Ref):
        return None
    value = opening.value(x)
    if len(ints(shape)) != 1 or value.numel == 0 or value.strides[-1] != 1:
        return None
    kwargs = (("eps", eps),)
    results = task.results[:1] if opening.unread(*task.results[1:]) else task.results
    if None in results or not _lie_alike(opening, results[1:]):
        return None
    made: list[Task] = []
    args = (x, *_scale_and_shift(opening, made, given, task.origin))
    return [*made, call(task.name, "nimble.layer_norm", args, results, kwargs, task.origin)]


def _scale_and_shift(
    opening: Opening, made: list[Task], given: Given, origin: str
) -> tuple[Arg, Arg]:
    weight, bias = (opening.in_line(made, given[name], origin) for name in ("weight", "bias"))
    return weight, bias


def _lie_alike(opening: Opening, statistics: Sequence[int | None]) -> bool:
    return len({opening.edit.values[v].strides for v in statistics if v is not None}) <= 1


def _layer_norm_gradient(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    gradient, x, weight = given["grad_out"], given["input"], given["weight"]
    mean, deviation = given["mean"], given["rstd"]
    if not all(isinstance(arg, Ref) for arg in (gradient, x, mean, deviation)):
        return None
    assert isinstance(gradient, Ref)
    assert isinstance(mean, Ref)
    assert isinstance(deviation, Ref)
    if len(ints(given["normalized_shape"])) != 1 or opening.value(gradient).numel == 0:
        return None
    if not _lie_alike(opening, (mean.id, deviation.id)):
        return None
    made: list[Task] = []
    if opening.value(gradient).strides[-1] != 1:
        gradient = opening.contiguous(made, gradient, task.origin)
    for_x, *sums = task.results
    weight = opening.in_line(made, weight, task.origin)
    if for_x is not None:
        args = (gradient, x, mean, deviation, *((weight,) if isinstance(weight, Ref) else ()))
        made.append(call(task.name, "nimble.layer_norm_gradient", args, (for_x,), (), task.origin))
    if any(v is not None for v in sums):
        name, args = f"{task.name}.sums", (gradient, x, mean, deviation)
        made.append(call(name, "nimble.layer_norm_sums", args, tuple(sums), (), task.origin))
    return made


def _group_norm(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    return _by_groups(opening, task, given, given["group"])


def _instance_norm(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """PyTorch makes it a batch norm of one element, whose channels are all those of the batch."""
    x = given["input"]
    if not isinstance(x, Ref) or not given["training"] or opening.value(x).shape[0] != 1:
        return None
    return _by_groups(opening, task, given, opening.value(x).shape[1])


def _by_groups(opening: Opening, task: Task, given: Given, groups: Arg) -> list[Task] | None:
    x = given["input"]
    if not isinstance(x, Ref) or not opening.unread(*task.results[1:]):
        return None
    value, result = opening.value(x), task.results[0]
    if value.numel == 0 or len(value.shape) < 2 or result is None:
        return None
    made: list[Task] = []
    copies: list[Task] = []
    if is_image(value) != is_image(opening.edit.values[result]):  # Kernels take both alike.
        x = opening.image(made, x, task.origin)
        result, copies = opening.as_image(result, task.origin)
    args = (x, *_scale_and_shift(opening, made, given, task.origin))
    kwargs = (("groups", groups), ("eps", given["eps"]))
    norm = call(task.name, "nimble.group_norm", args, (result,), kwargs, task.origin)
    return [*made, norm, *copies]


CONVERSIONS: dict[str, Conversion] = {
    "aten._native_batch_norm_legit.no_stats": _instance_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_gradient,
}
