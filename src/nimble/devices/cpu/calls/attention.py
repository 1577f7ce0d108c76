"""Attention as one task."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.devices.cpu.geometry import broadcast
from nimble.graph import DType, Ref, Task
from nimble.lower import Values


def _attention(graph: Values, task: Task, given: Given) -> NativeCall | None:
    query, key, value, mask = task.args
    assert isinstance(query, Ref)
    assert isinstance(key, Ref)
    assert isinstance(value, Ref)
    q, k, v = graph[query.id], graph[key.id], graph[value.id]
    y, scratch = task.writes
    ints = [q.shape[0], q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2], q.shape[3]]
    ints += [v.shape[3], int(bool(given["causal"])), int(isinstance(mask, Ref))]
    for tensor in (graph[y], q, k, v):
        ints += tensor.strides[:3]
    operands = [y, scratch, query.id, key.id, value.id]
    if isinstance(mask, Ref):
        if graph[mask.id].dtype is not DType.FLOAT32:
            return None
        shape = (*q.shape[:3], k.shape[2])
        ints += broadcast(graph[mask.id], shape)
        operands.append(mask.id)
    return NativeCall("attention.float32", tuple(operands), tuple(ints), (float(given["scale"]),))


CALLS: dict[str, Make] = {"nimble.attention": _attention}
