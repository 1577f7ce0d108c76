"""Attention as one task, and its gradients as another."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall, in_line
from nimble.devices.cpu.geometry import broadcast
from nimble.graph import Arg, DType, Ref, Task
from nimble.lower import Values


def _attention(graph: Values, task: Task, given: Given) -> NativeCall | None:
    tensors, mask = _named(task.args[:3]), task.args[3]
    q, k, v = (graph[t] for t in tensors)
    y, scratch, *sums = task.writes
    if graph[y].shape[:3] != q.shape[:3] or not in_line(graph, *map(Ref, (y, *tensors))):
        return None
    ints = [q.shape[0], q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2], q.shape[3]]
    ints += [v.shape[3], int(bool(given["causal"])), int(isinstance(mask, Ref)), len(sums)]
    for tensor in (graph[y], q, k, v):
        ints += tensor.strides[:3]
    operands = [y, scratch, *tensors]
    if isinstance(mask, Ref):
        if graph[mask.id].dtype is not DType.FLOAT32:
            return None
        ints += broadcast(graph[mask.id], (*q.shape[:3], k.shape[2]))
        operands.append(mask.id)
    for v_id in sums:
        ints += graph[v_id].strides
        operands.append(v_id)
    return NativeCall("attention.float32", tuple(operands), tuple(ints), (float(given["scale"]),))


def _gradient(graph: Values, task: Task, given: Given) -> NativeCall | None:
    tensors, mask = _named(task.args[:6]), task.args[6]
    dy, q, k, v, y, sums = (graph[t] for t in tensors)
    *results, scratch = task.writes
    if not in_line(graph, *map(Ref, (*results, *tensors[:-1]))):
        return None
    ints = [*q.shape[:3], k.shape[2], q.shape[3], v.shape[3]]
    ints += [int(bool(given["causal"])), int(isinstance(mask, Ref))]
    for tensor in (*(graph[r] for r in results), dy, q, k, v, y, sums):
        ints += tensor.strides[:3]
    operands = [*results, scratch, *tensors]
    if isinstance(mask, Ref):
        if graph[mask.id].dtype is not DType.FLOAT32:
            return None
        ints += broadcast(graph[mask.id], (*q.shape[:3], k.shape[2]))
        operands.append(mask.id)
    return NativeCall(
        "attention_gradient.float32", tuple(operands), tuple(ints), (float(given["scale"]),)
    )


def _named(args: tuple[Arg, ...]) -> list[int]:
    return [arg.id for arg in args if isinstance(arg, Ref)]


CALLS: dict[str, Make] = {
    "nimble.attention": _attention,
    "nimble.attention_gradient": _gradient,
}
