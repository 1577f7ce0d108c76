"""Products of matrices: by weights, packed ahead of time, and of what was just computed."""

from __future__ import annotations

from nimble.graph import DType, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import PANEL, Conversion, Given, Opening

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
        return _matmul(opening, task, given) if product else None
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
    return [
        *made,
        call(task.name, "nimble.linear", (x, packed, bias), (result,), (), task.origin),
    ]


def _matmul(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """(batch, rows, in) by (batch, in, out), neither of them fixed; or both without a batch."""
    x, w, result = given["self"], given["mat2"], task.results[0]
    if not isinstance(x, Ref) or not isinstance(w, Ref) or result is None:
        return None
    inside = opening.value(x).shape[-1]
    if 0 in (opening.value(x).numel, opening.value(w).numel) or inside > _MOST_INSIDE:
        return None
    room = opening.edit.add_root(
        f"{task.name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (inside * PANEL,)
    )
    return [call(task.name, "nimble.matmul", (x, w), (result, room), (), task.origin)]


CONVERSIONS: dict[str, Conversion] = {
    "aten.addmm.default": _linear,
    "aten.bmm.default": _matmul,
    "aten.mm.default": _linear,
}
