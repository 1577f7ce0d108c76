"""An LSTM, which PyTorch runs as one operator, step by step.

The product of all inputs by their weights is one task ahead of all steps. A step is then a product
of the last output by its weights, and one pointwise task for the gates: see the other passes.
"""

from __future__ import annotations

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Symbol, Task, Value, contiguous_strides
from nimble.graph.edit import call
from nimble.lower.kernels import FIXED
from nimble.rewrite import fold_constants, remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks

_LAYER = "aten.mkldnn_rnn_layer.default"
_LSTM = 2
"""The mode; PyTorch opens up other recurrent networks itself."""
_MOST_STEPS = 1024


def open_recurrent(graph: Graph) -> Graph:
    """The graph with the steps of its LSTMs as tasks."""
    pure = pure_tasks(graph)
    edit = Edit(graph)
    opened = False
    for t, task in enumerate(graph.tasks):
        if t in pure and task.op == _LAYER and _is_simple(graph, task):
            edit.tasks += _Layer(edit, graph, task).steps()
            opened = True
        else:
            edit.tasks.append(task)
    return fold_constants(remove_dead_tasks(edit.done())) if opened else graph


def _is_simple(graph: Graph, task: Task) -> bool:
    given = arguments(task)
    weights = [given[f"weight{i}"] for i in range(4)]
    x, workspace = given["input"], task.results[3]
    if given["mode"] != _LSTM or given["batch_sizes"] or given["train"]:
        return False
    if not isinstance(x, Ref) or any(graph[v].dtype is not DType.FLOAT32 for v in task.reads):
        return False
    read = workspace is not None and graph.readers.get(workspace)
    fixed = all(isinstance(w, Ref) and graph.content(w.id).role in FIXED for w in weights)
    return fixed and not read and graph[x.id].numel > 0 and graph[x.id].shape[0] <= _MOST_STEPS


class _Layer:
    def __init__(self, edit: Edit, graph: Graph, task: Task) -> None:
        self._edit = edit
        self._graph = graph
        self._task = task
        self._given = arguments(task)
        self._made: list[Task] = []
        shape = self._value(self._given["input"]).shape
        self._length, self._batch, self._inside = shape
        size = self._given["hidden_size"]
        assert isinstance(size, int)
        self._size = size

    def steps(self) -> list[Task]:
        given = self._given
        moved = self._turned(given["weight1"])
        inputs = self._of_inputs()
        wide, each = (self._batch, 4 * self._size), (self._batch, self._size)
        h, c = (self._shaped(given[name], each) for name in ("hx_", "cx_"))
        outputs: list[Ref] = []
        order = range(self._length)
        for t in reversed(order) if given["reverse"] else order:
            product = self._compute("aten.mm.default", wide, h, moved)
            mine = self._part(inputs, wide, (4 * self._size, 1), t * self._batch * 4 * self._size)
            gates = self._compute("aten.add.Tensor", wide, product, mine)
            into, forget, new, out = (
                self._part(gates, each, (4 * self._size, 1), g * self._size) for g in range(4)
            )
            kept = self._compute("aten.mul.Tensor", each, self._squash(forget), c)
            fresh = self._compute("aten.tanh.default", each, new)
            taken = self._compute("aten.mul.Tensor", each, self._squash(into), fresh)
            c = self._compute("aten.add.Tensor", each, kept, taken)
            shown = self._compute("aten.tanh.default", each, c)
            h = self._compute("aten.mul.Tensor", each, self._squash(out), shown)
            outputs.append(h)
        if given["reverse"]:
            outputs.reverse()
        whole, last, state, _ = self._task.results
        self._finish("", "aten.stack.default", whole, tuple(outputs), 0)
        self._finish(".h", "aten.clone.default", last, h)
        self._finish(".c", "aten.clone.default", state, c)
        return self._made

    def _of_inputs(self) -> Ref:
        """All inputs by their weights, with both biases: (steps x batch, 4 x size)."""
        given = self._given
        rows, wide = self._length * self._batch, 4 * self._size
        flat = self._shaped(given["input"], (rows, self._inside))
        weight = self._turned(given["weight0"])
        if not given["has_biases"]:
            return self._compute("aten.mm.default", (rows, wide), flat, weight)
        bias = self._compute("aten.add.Tensor", (wide,), given["weight2"], given["weight3"])
        return self._compute("aten.addmm.default", (rows, wide), bias, flat, weight)

    # Building

    def _value(self, arg: Arg) -> Value:
        assert isinstance(arg, Ref)
        return self._edit.values[arg.id]

    def _compute(self, op: str, shape: tuple[int, ...], *args: Arg, **kwargs: Arg) -> Ref:
        name = f"{self._task.name}.{len(self._made)}"
        v = self._edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, shape)
        made = call(name, op, args, (v,), tuple(kwargs.items()), self._task.origin)
        self._made.append(made)
        return Ref(v)

    def _squash(self, gate: Ref) -> Ref:
        return self._compute("aten.sigmoid.default", self._value(gate).shape, gate)

    def _part(self, whole: Ref, shape: tuple[int, ...], strides: tuple[int, ...], at: int) -> Ref:
        value = self._value(whole)
        offset = at * value.dtype.itemsize
        return Ref(self._edit.add_view(f"{value.name}[{at}]", whole.id, shape, strides, offset))

    def _turned(self, weight: Arg) -> Ref:
        assert isinstance(weight, Ref)
        value = self._value(weight)
        name, shape, strides = f"{value.name}.turned", value.shape[::-1], value.strides[::-1]
        return Ref(self._edit.add_view(name, weight.id, shape, strides))

    def _shaped(self, arg: Arg, shape: tuple[int, ...]) -> Ref:
        """The tensor as a matrix, copied if its rows do not follow each other."""
        assert isinstance(arg, Ref)
        value = self._value(arg)
        if value.strides != contiguous_strides(value.shape):
            order = Symbol("memory_format", "contiguous_format")
            arg = self._compute("aten.clone.default", value.shape, arg, memory_format=order)
        return self._part(arg, shape, contiguous_strides(shape), 0)

    def _finish(self, name: str, op: str, result: int | None, source: Arg, *more: Arg) -> None:
        """Write a result of the operator."""
        if result is None:
            return
        value = self._edit.values[result]
        if isinstance(source, Ref):
            source = self._part(source, value.shape, contiguous_strides(value.shape), 0)
        task = self._task
        made = call(f"{task.name}{name}", op, (source, *more), (result,), (), task.origin)
        self._made.append(made)
