"""Squeeze and excite: what scales an image's channels scales the next layer's weights instead.

A gate multiplies every pixel of an image that only a 1 x 1 convolution reads. That is the same as
the convolution with its weights multiplied by the gate, and those are often far fewer.
"""

from __future__ import annotations

from nimble.graph import Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.kernels import FIXED, Supported
from nimble.rewrite import remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks

_PRODUCT = "aten.mul.Tensor"
_CONVOLUTION = "nimble.convolution"
_FEWER = 4
"""So many times fewer have to be the weights: a gate for each 16 of them is a slower product."""


def gate_weights(graph: Graph, supported: Supported) -> Graph:
    gates = _Gates(graph, supported)
    for t in range(len(graph.tasks)):
        gates.take(t)
    return gates.done()


class _Gates:
    def __init__(self, graph: Graph, supported: Supported) -> None:
        self._graph = graph
        self._supported = supported
        self._pure = pure_tasks(graph)
        self._edit = Edit(graph)
        self._readers: dict[int, int] = {}
        for v in (*(v for task in graph.tasks for v in task.reads), *graph.outputs):
            content = graph.content(v).id
            self._readers[content] = self._readers.get(content, 0) + 1

    def done(self) -> Graph:
        found = len(self._edit.tasks) > len(self._graph.tasks)
        return remove_dead_tasks(self._edit.done()) if found else self._graph

    def take(self, t: int) -> None:
        task = self._graph.tasks[t]
        self._edit.tasks += self._gated(task) or [task]

    def _gated(self, task: Task) -> list[Task] | None:
        if task.op != _CONVOLUTION:
            return None
        x, weight, bias = task.args
        given = dict(task.kwargs)
        if given["kernel"] != (1, 1) or given["groups"] != 1 or given["padding"] != (0, 0):
            return None
        if not isinstance(x, Ref) or not isinstance(weight, Ref):
            return None
        found = self._product(x.id)
        packed = self._graph[weight.id]
        if found is None or self._graph.content(weight.id).role not in FIXED:
            return None
        image, gate = found
        if _FEWER * packed.numel > self._graph[image].numel:
            return None
        step = self._graph[gate].strides[1]
        along = self._edit.add_view(
            f"{task.name}.gate", gate, (1, 1, 1, packed.shape[3], 1), (0, 0, 0, step, 0)
        )
        gated = self._edit.add_root(
            f"{task.name}.gated", Role.INTERMEDIATE, packed.dtype, packed.shape, packed.strides
        )
        scale = call(
            f"{task.name}.gated", _PRODUCT, (weight, Ref(along)), (gated,), (), task.origin
        )
        made = call(
            task.name,
            task.op,
            (Ref(image), Ref(gated), bias),
            task.results,
            task.kwargs,
            task.origin,
        )
        return [scale, made] if self._supported(self._edit.values, made) else None

    def _product(self, v: int) -> tuple[int, int] | None:
        """The image and the gate that a value is the product of, if nobody else reads it."""
        writer = self._graph.writer.get(v)
        if writer is None or writer not in self._pure or self._readers[v] != 1:
            return None
        task = self._graph.tasks[writer]
        if task.op != _PRODUCT:
            return None
        given = arguments(task)
        shape = self._graph[v].shape
        for image, gate in (
            (given["self"], given["other"]), (given["other"], given["self"])
        ):  # fmt: skip
            if (
                isinstance(image, Ref)
                and isinstance(gate, Ref)
                and self._graph[image.id].shape == shape
                and self._graph[image.id].dtype is self._graph[gate.id].dtype
                and self._graph[gate.id].shape == (1, shape[1], 1, 1)
                and shape[0] == 1
            ):
                return image.id, gate.id
        return None
