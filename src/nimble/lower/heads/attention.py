"""Attention as one task."""

from __future__ import annotations

from nimble.graph import DType, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import PANEL, Conversion, Given, Opening

_ROWS = 6
"""Queries whose scores are kept at once: kAttentionRows of native/kernels/attention.h."""


def _attention(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    query, key, value = given["query"], given["key"], given["value"]
    result = task.results[0]
    if given["dropout_p"] or not opening.unread(*task.results[1:]) or result is None:
        return None
    tensors = [arg for arg in (query, key, value) if isinstance(arg, Ref)]
    if any(len(opening.value(t).shape) != 4 or opening.value(t).strides[3] != 1 for t in tensors):
        return None
    mask = given["attn_mask"]
    q, k, v = (opening.value(t) for t in tensors)
    if 0 in (q.numel, k.numel, v.numel) or opening.edit.values[result].strides[3] != 1:
        return None
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        return None
    keys, dim, value_dim = k.shape[2], q.shape[3], v.shape[3]
    panels = -(-keys // PANEL) * PANEL
    room = panels * (dim + _ROWS)
    room += 0 if value_dim % PANEL == 0 else -(-value_dim // PANEL) * PANEL * keys
    scratch = opening.edit.add_root(
        f"{task.name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (room,)
    )
    scale = given["scale"] if isinstance(given["scale"], float) else dim**-0.5
    kwargs = (("causal", given["is_causal"]), ("scale", scale))
    args = (*tensors, mask)
    return [call(task.name, "nimble.attention", args, (result, scratch), kwargs, task.origin)]


CONVERSIONS: dict[str, Conversion] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
}
