"""What a dropout draws is kept for the way back as truth values, a byte for each element.

Eager keeps 0 or 1 / (1 - p) as a float. Here x * noise is x * drawn * (1 / (1 - p)), which is the
same to the bit, and each product takes the draws as they are: none has to be kept for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nimble.graph import DType, Edit, Graph, Ref, Role, Task, contiguous_strides, refs
from nimble.graph.edit import call
from nimble.rewrite.operators import is_uninitialised

_DRAW = "aten.bernoulli.p"
_SCALE = "aten.div.Scalar"
_PRODUCT = "aten.mul.Tensor"


@dataclass(frozen=True, slots=True)
class _Dropout:
    """Places of tasks: memory, the draw into it, the division, and the products with the noise."""

    memory: int
    draw: int
    scale: int
    products: tuple[int, ...]


def keep_draws_small(graph: Graph) -> Graph:
    """Draw truth values where all that is done with a draw is to scale it and multiply by it."""
    found = [d for d in _dropouts(graph) if len(d.products) > 1]
    if not found:
        return graph
    edit = Edit(graph)
    made: dict[int, list[Task]] = {}
    for dropout in found:
        made |= _rewritten(edit, dropout)
    for t, task in enumerate(graph.tasks):
        edit.tasks += made.get(t, [task])
    return edit.done()


def _dropouts(graph: Graph) -> list[_Dropout]:
    readers: dict[int, set[int]] = {}
    shown = {graph.content(v).id for v in graph.outputs}
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            readers.setdefault(graph.content(v).id, set()).add(t)

    def only_reader(v: int) -> int | None:
        found = readers.get(graph.content(v).id, set())
        return next(iter(found)) if len(found) == 1 and graph.content(v).id not in shown else None

    dropouts = []
    for t, task in enumerate(graph.tasks):
        if task.op != _DRAW or not isinstance(task.args[0], Ref):
            continue
        memory, drawn = graph.writer.get(graph.content(task.args[0].id).id), task.results[0]
        if memory is None or drawn is None or only_reader(task.args[0].id) != t:
            continue
        scale = only_reader(drawn)
        if scale is None or graph.tasks[scale].op != _SCALE:
            continue
        noise = graph.tasks[scale].writes[0]
        products = tuple(sorted(readers.get(noise, ())))
        fits = (
            is_uninitialised(graph.tasks[memory].op)
            and graph[drawn].dtype is DType.FLOAT32
            and graph[drawn].strides == contiguous_strides(graph[drawn].shape)
            and graph.tasks[scale].args[1] != 0
            and graph[noise].role is Role.INTERMEDIATE
            and noise not in shown
            and all(_multiplies(graph, graph.tasks[p], noise) for p in products)
        )
        if fits:
            dropouts.append(_Dropout(memory, t, scale, products))
    return dropouts


def _multiplies(graph: Graph, task: Task, noise: int) -> bool:
    """Whether a task is a product of the noise, as it is, and an image of the same shape."""
    return (
        task.op == _PRODUCT
        and Ref(noise) in task.args
        and sum(graph.content(v).id == noise for v in refs(task.args)) == 1
        and all(
            isinstance(arg, Ref)
            and graph[arg.id].shape == graph[noise].shape
            and graph[arg.id].dtype is DType.FLOAT32
            for arg in task.args
        )
    )


def _rewritten(edit: Edit, dropout: _Dropout) -> dict[int, list[Task]]:
    """What the tasks of a dropout become."""
    graph = edit.graph
    memory, draw, scale = (graph.tasks[t] for t in (dropout.memory, dropout.draw, dropout.scale))
    into, drawn, factor = draw.args[0], draw.results[0], scale.args[1]
    assert isinstance(into, Ref)
    assert drawn is not None
    assert isinstance(factor, int | float)
    shape = graph[into.id].shape
    room = edit.add_root(memory.name, Role.INTERMEDIATE, DType.BOOL, shape)
    truth = edit.add_root(draw.name, Role.INTERMEDIATE, DType.BOOL, shape)
    empty = ("aten.empty.memory_format", (shape,), (room,), (("dtype", DType.BOOL),))
    made = {
        # Of the memory only the shape counts. Where it was like an image, it has read that.
        dropout.memory: [call(memory.name, *empty, memory.origin)],
        dropout.draw: [
            replace(
                draw,
                args=(Ref(room), *draw.args[1:]),
                reads=tuple(room if v == into.id else v for v in draw.reads),
                writes=tuple(truth if v == drawn else v for v in draw.writes),
                results=(truth, *draw.results[1:]),
            )
        ],
        dropout.scale: [],
    }
    noise = scale.writes[0]
    divided = scale.args[0]
    assert isinstance(divided, Ref)
    mask = Ref(_seen(edit, divided.id, truth))
    kept = float(np.float32(1.0) / np.float32(factor))
    for t in dropout.products:
        task = graph.tasks[t]
        (x,) = (arg for arg in task.args if arg != Ref(noise))
        (result,) = task.writes
        value = graph[result]
        half = edit.add_root(
            f"{task.name}.drawn", Role.INTERMEDIATE, value.dtype, value.shape, value.strides
        )
        made[t] = [
            call(f"{task.name}.drawn", _PRODUCT, (x, mask), (half,), (), task.origin),
            call(task.name, "aten.mul.Scalar", (Ref(half), kept), (result,), (), task.origin),
        ]
    return made


def _seen(edit: Edit, id: int, truth: int) -> int:
    """A value's view of the truth values that stand for its base."""
    value = edit.values[id]
    if value.base is None:
        return truth
    offset = value.offset // value.dtype.itemsize
    return edit.add_view(value.name, truth, value.shape, value.strides, offset)
