"""Attention as one task, and its gradients as another."""

from __future__ import annotations

from nimble.graph import Arg, DType, Role, Task, Value
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening
from nimble.lower.kernels import PANEL

_ROWS = 6
"""Queries whose scores are kept at once: kAttentionRows of native/kernels/attention.h."""
_MOST_SCORES = 1 << 20
"""Of a head that are kept at once for its gradients: more would not stay in the cache."""


def _attention(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    found = _tensors(opening, given)
    result, sums = task.results[:2]
    if given["dropout_p"] or result is None or found is None:
        return None
    q, k, v = found
    if opening.edit.values[result].strides[3] != 1 or q.shape[1] % k.shape[1]:
        return None
    keys, dim, value_dim = k.shape[2], q.shape[3], v.shape[3]
    room = _padded(keys) * (dim + _ROWS)
    room += 0 if value_dim % PANEL == 0 else _padded(value_dim) * keys
    results = [result, _scratch(opening, task, room)]
    if sums is not None and not opening.unread(sums):
        results.append(sums)
    numbers = _numbers(given, q)
    return [call(task.name, "nimble.attention", _args(given), tuple(results), numbers, task.origin)]


def _gradient(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    found = _tensors(opening, given)
    results = [v for v in task.results if v is not None]
    if given["dropout_p"] or len(results) != 3 or found is None:
        return None
    q, k, v = found
    others = [opening.edit.values[v] for v in results]
    others += [opening.value(given[name]) for name in ("grad_out", "out")]
    if any(value.strides[3] != 1 for value in others) or q.shape[1] != k.shape[1]:
        return None
    queries, keys, dim, value_dim = q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    if dim % PANEL or value_dim % PANEL or queries * keys > _MOST_SCORES:
        return None
    room = _padded(queries) * (dim + value_dim + 2 + _ROWS + keys)
    tensors = (given["grad_out"], *_args(given)[:3], given["out"], given["logsumexp"])
    args, written = (*tensors, given["attn_mask"]), (*results, _scratch(opening, task, room))
    numbers = _numbers(given, q)
    return [call(task.name, "nimble.attention_gradient", args, written, numbers, task.origin)]


def _tensors(opening: Opening, given: Given) -> tuple[Value, Value, Value] | None:
    """Queries, keys and values, if every head's elements lie side by side."""
    found = [opening.value(given[name]) for name in ("query", "key", "value")]
    if any(len(t.shape) != 4 or t.strides[3] != 1 or t.numel == 0 for t in found):
        return None
    q, k, v = found
    return q, k, v


def _args(given: Given) -> tuple[Arg, ...]:
    return given["query"], given["key"], given["value"], given["attn_mask"]


def _numbers(given: Given, q: Value) -> tuple[tuple[str, Arg], ...]:
    scale = given["scale"] if isinstance(given["scale"], float) else q.shape[3] ** -0.5
    return ("causal", given["is_causal"]), ("scale", scale)


def _padded(count: int) -> int:
    return -(-count // PANEL) * PANEL


def _scratch(opening: Opening, task: Task, room: int) -> int:
    name = f"{task.name}.scratch"
    return opening.edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, (room,))


CONVERSIONS: dict[str, Conversion] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _gradient,
}
