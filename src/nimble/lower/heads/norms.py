"""Normalisation over the last dimension, or over groups of channels."""

from __future__ import annotations

from nimble.graph import Arg, Ref, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening, ints


def _layer_norm(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    x, shape, eps = given["input"], given["normalized_shape"], given["eps"]
    if not isinstance(x, Ref) or not opening.unread(*task.results[1:]):
        return None
    value = opening.value(x)
    if len(ints(shape)) != 1 or value.numel == 0 or value.strides[-1] != 1:
        return None
    args = (x, given["weight"], given["bias"])
    kwargs = (("eps", eps),)
    return [call(task.name, "nimble.layer_norm", args, (task.results[0],), kwargs, task.origin)]


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
    value = opening.value(x)
    if value.numel == 0 or len(value.shape) < 2:
        return None
    args = (x, given["weight"], given["bias"])
    kwargs = (("groups", groups), ("eps", given["eps"]))
    return [call(task.name, "nimble.group_norm", args, (task.results[0],), kwargs, task.origin)]


CONVERSIONS: dict[str, Conversion] = {
    "aten._native_batch_norm_legit.no_stats": _instance_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_layer_norm.default": _layer_norm,
}
