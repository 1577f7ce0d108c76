"""Chains of pointwise operators."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.devices.cpu.geometry import broadcast
from nimble.devices.cpu.programs import DTYPES, instructions
from nimble.graph import Task, refs
from nimble.lower import Values


def _pointwise(graph: Values, task: Task, given: Given) -> NativeCall | None:
    inputs, steps, outputs = given["program"]
    shape = graph[task.writes[0]].shape
    results = [v for v in task.results if v is not None]
    sources = [v for arg in task.args for v in refs(arg)]
    if len(shape) > 6 or graph[results[0]].numel == 0:
        return None
    ints = [len(results), len(sources), len(shape), *shape]
    for v in (*results, *sources):
        if graph[v].dtype not in DTYPES:
            return None
        ints += [DTYPES[graph[v].dtype], *broadcast(graph[v], shape)]
    code, floats = instructions(steps, inputs, outputs)
    return NativeCall("pointwise.float32", (*results, *sources), (*ints, *code), tuple(floats))


CALLS: dict[str, Make] = {"nimble.pointwise": _pointwise}
