"""Batch norm with fixed statistics, where no convolution could take it: a scale and a shift."""

from __future__ import annotations

from nimble.graph import Arg, Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.kernels import FIXED
from nimble.rewrite import fold_constants
from nimble.rewrite.operators import arguments

BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


def open_batch_norms(graph: Graph) -> Graph:
    """x * scale + shift, of which scale and shift are computed ahead of time."""
    edit = Edit(graph)
    opened = False
    for task in graph.tasks:
        if task.op == BATCH_NORM and _is_simple(graph, task):
            edit.tasks.extend(_scale_and_shift(edit, task))
            opened = True
        else:
            edit.tasks.append(task)
    return fold_constants(edit.done()) if opened else graph


def _is_simple(graph: Graph, task: Task) -> bool:
    given = arguments(task)
    fixed = [given[name] for name in ("weight", "bias", "running_mean", "running_var")]
    read = [arg for arg in fixed if isinstance(arg, Ref)]
    unused = [v for v in task.results[1:] if v is not None and graph[v].numel]
    return (
        isinstance(given["running_mean"], Ref)
        and isinstance(given["running_var"], Ref)
        and all(graph.content(arg.id).role in FIXED for arg in read)
        and not any(graph.readers.get(v) or v in graph.outputs for v in unused)
        and len(graph[task.reads[0]].shape) >= 2
    )


def _scale_and_shift(edit: Edit, task: Task) -> list[Task]:
    given = arguments(task)
    x, result = given["input"], task.results[0]
    assert isinstance(x, Ref)
    assert result is not None
    image = edit.values[x.id]
    mean, variance = given["running_mean"], given["running_var"]
    assert isinstance(mean, Ref)
    channels = edit.values[mean.id]
    shape = (channels.shape[0], *(1,) * (len(image.shape) - 2))
    made: list[Task] = []

    def add(op: str, *args: Arg) -> Ref:
        name = f"{task.name}.{len(made)}"
        v = edit.add_root(name, Role.INTERMEDIATE, channels.dtype, channels.shape)
        made.append(call(name, op, args, (v,), (), task.origin))
        return Ref(v)

    def along_channels(v: Ref) -> Ref:
        steps = (1,) * len(shape)
        return Ref(edit.add_view(f"{edit.values[v.id].name}.wide", v.id, shape, steps))

    scale = add("aten.rsqrt.default", add("aten.add.Tensor", variance, given["eps"]))
    if isinstance(given["weight"], Ref):
        scale = add("aten.mul.Tensor", scale, given["weight"])
    shift = add("aten.neg.default", add("aten.mul.Tensor", mean, scale))
    if isinstance(given["bias"], Ref):
        shift = add("aten.add.Tensor", shift, given["bias"])
    scaled = edit.add_root(
        f"{task.name}.scaled", Role.INTERMEDIATE, image.dtype, image.shape, image.strides
    )
    first = call(
        f"{task.name}.scale", "aten.mul.Tensor", (x, along_channels(scale)), (scaled,), (),
        task.origin,
    )  # fmt: skip
    second = call(
        task.name, "aten.add.Tensor", (Ref(scaled), along_channels(shift)), (result,), (),
        task.origin,
    )  # fmt: skip
    return [*made, first, second]
