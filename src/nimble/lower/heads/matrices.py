"""Products of matrices: by weights, packed ahead of time, and of what was just computed."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Arg, DType, Ref, Role, Task, Value
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening
from nimble.lower.kernels import PANEL

_MOST_INSIDE = 2**20


def _linear(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """addmm(bias, x, w) and mm(x, w) with fixed w: (rows, in) by (in, out)."""
    product = task.op == "aten.mm.default"
    x, weight = (given["self"], given["mat2"]) if product else (given["mat1"], given["mat2"])
    bias = None if product else given["self"]
    result = task.results[0]
    if not isinstance(x, Ref) or not isinstance(weight, Ref) or result is None:
        return None
    if not opening.is_fixed(weight):
        return _matmul(opening, task, given) if product else _plus(opening, task, given)
    if not product and (given["beta"] != 1 or given["alpha"] != 1 or not opening.is_fixed(bias)):
        return None
    source, w = opening.value(x), opening.value(weight)
    if source.numel == 0 or w.numel == 0 or source.shape[1] > _MOST_INSIDE:
        return None
    if isinstance(bias, Ref) and opening.value(bias).shape != (w.shape[1],):
        return None
    if source.strides[1] != 1 and source.shape[1] > 1:
        return None
    made: list[Task] = []
    turned = opening.edit.add_view("weight", weight.id, w.shape[::-1], w.strides[::-1])
    packed = opening.packed(made, Ref(turned), 1, (w.shape[1], w.shape[0], 1), task.origin)
    bias = opening.in_line(made, bias, task.origin)
    args = (x, packed, bias)
    return [*made, call(task.name, "nimble.linear", args, (result,), (), task.origin)]


def _plus(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """addmm: a product, and a sum that becomes its end."""
    bias, result = given["self"], task.results[0]
    if given["beta"] != 1 or given["alpha"] != 1 or not isinstance(bias, Ref) or result is None:
        return None
    if opening.value(bias).shape != opening.edit.values[result].shape[-1:]:
        return None
    value = opening.edit.values[result]
    name = f"{task.name}.product"
    between = opening.edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, value.shape)
    inner = replace(task, name=name, op="aten.mm.default", results=(between,), writes=(between,))
    made = _matmul(opening, inner, {"self": given["mat1"], "mat2": given["mat2"]})
    if made is None:
        return None
    args = (Ref(between), bias)
    return [*made, call(task.name, "aten.add.Tensor", args, (result,), (), task.origin)]


def _matmul(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """(batch, rows, in) by (batch, in, out), neither of them fixed; or both without a batch."""
    x, w, result = given["self"], given["mat2"], task.results[0]
    if not isinstance(x, Ref) or not isinstance(w, Ref) or result is None:
        return None
    if _is_gradient(opening.value(x), opening.value(w)):
        return [_gradient(opening, task, x, w, result)]
    inside = opening.value(x).shape[-1]
    if 0 in (opening.value(x).numel, opening.value(w).numel) or inside > _MOST_INSIDE:
        return None
    room = opening.edit.add_root(
        f"{task.name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (inside * PANEL,)
    )
    return [call(task.name, "nimble.matmul", (x, w), (result, room), (), task.origin)]


def _is_gradient(x: Value, w: Value) -> bool:
    """Whether x is shown transposed: each row of its memory is to be multiplied by one of w's, as
    for the gradient of a layer's weights."""
    return (
        len(x.shape) == 2
        and 0 not in (x.numel, w.numel)
        and x.strides[0] == 1
        and x.strides[1] >= x.shape[0] > 1
        and w.strides[1] == 1
    )


def _gradient(opening: Opening, task: Task, x: Ref, w: Ref, result: int) -> Task:
    """Rows are the pixels of an image of one row."""

    def image(of: Ref, channels: int, rows: int, step: int) -> Ref:
        name = f"{opening.value(of).name}.pixels"
        strides = (rows * step, 1, rows * step, step)
        return Ref(opening.edit.add_view(name, of.id, (1, channels, 1, rows), strides))

    (out, rows), inside = opening.value(x).shape, opening.value(w).shape[1]
    value = opening.edit.values[result]
    strides = (value.strides[0], value.strides[1], 1, 1)
    place = opening.edit.add_view(f"{value.name}.weights", result, (out, inside, 1, 1), strides)
    images = (
        image(x, out, rows, opening.value(x).strides[1]),
        image(w, inside, rows, opening.value(w).strides[0]),
    )
    once = (1, 1)
    kwargs: tuple[tuple[str, Arg], ...] = (
        ("kernel", once), ("stride", once), ("padding", (0, 0)), ("dilation", once),
    )  # fmt: skip
    return call(task.name, "nimble.weight_gradient", images, (place,), kwargs, task.origin)


CONVERSIONS: dict[str, Conversion] = {
    "aten.addmm.default": _linear,
    "aten.bmm.default": _matmul,
    "aten.mm.default": _linear,
}
