"""Fold a batch norm with fixed statistics into the convolution or linear layer before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task, Value, call, fresh, is_dense
from nimble.rewrite.constants import fold_constants
from nimble.rewrite.operators import arguments, pure_tasks

_NORMS = {
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten.cudnn_batch_norm.default",
}
_LAYERS = {"aten.convolution.default", "aten.addmm.default", "aten.mm.default"}
# A folded weight is rounded once more than eager rounds it. In half precision that is an error of
# up to 2^-9 in every weight, as large as that of the result itself, so those are left alone.
_FOLDED_DTYPES = {DType.FLOAT32, DType.FLOAT64}


@dataclass(frozen=True, slots=True)
class _Pair:
    """A layer and the batch norm after it, by their numbers, and the operands of both."""

    layer: int
    norm: int
    weight: int
    bias: int | None
    scale: int | None
    shift: int | None
    mean: int
    variance: int
    epsilon: float


def fold_batch_norm(graph: Graph) -> Graph:
    """Scale the weights and shift the bias of every layer whose only reader is a batch norm.

    `(layer(x) - mean) / sqrt(variance + epsilon) * scale + shift` is the same layer with other
    weights, which the prologue computes.
    """
    while pairs := _pairs(graph):
        graph = fold_constants(_fold(graph, pairs))
    return graph


def _pairs(graph: Graph) -> list[_Pair]:
    pure = pure_tasks(graph)
    uses = Counter(graph.content(v).id for v in graph.outputs)
    for task in graph.tasks:
        uses.update({graph.content(v).id for v in task.reads})
    pairs = []
    for t, norm in enumerate(graph.tasks):
        if norm.op not in _NORMS or t not in pure or any(uses[v] for v in norm.writes[1:]):
            continue
        between = arguments(norm)["input"]
        assert isinstance(between, Ref)
        layer = graph.writer.get(between.id)
        if layer is None or layer not in pure or uses[between.id] != 1:
            continue
        pair = _pair(graph, layer, t)
        if pair is not None:
            pairs.append(pair)
    return pairs


def _pair(graph: Graph, layer: int, norm: int) -> _Pair | None:
    first, second = graph.tasks[layer], graph.tasks[norm]
    if first.op not in _LAYERS:
        return None
    given, normed = arguments(first), arguments(second)
    before, after = graph[first.writes[0]], graph[second.writes[0]]
    if (before.dtype, before.shape, before.strides) != (after.dtype, after.shape, after.strides):
        return None
    if normed.get("training", False) is not False or before.dtype not in _FOLDED_DTYPES:
        return None
    if (given.get("beta", 1), given.get("alpha", 1)) != (1, 1):
        return None
    weight = given["weight" if first.op == "aten.convolution.default" else "mat2"]
    bias = given.get("bias", given["self"] if first.op == "aten.addmm.default" else None)
    epsilon = normed["eps" if "eps" in normed else "epsilon"]
    vectors = [bias, *(normed[n] for n in ("weight", "bias", "running_mean", "running_var"))]
    channels = before.shape[1]
    fits = all(v is None or _fixed(graph, v, before.dtype, (channels,)) for v in vectors)
    b, scale, shift, mean, variance = (v.id if isinstance(v, Ref) else None for v in vectors)
    if not fits or mean is None or variance is None or not isinstance(epsilon, float):
        return None
    if not _fixed(graph, weight, before.dtype):
        return None
    assert isinstance(weight, Ref)
    return _Pair(layer, norm, weight.id, b, scale, shift, mean, variance, epsilon)


def _fixed(graph: Graph, arg: Arg, dtype: DType, shape: tuple[int, ...] | None = None) -> bool:
    """Whether an argument is a dense tensor that only a change of the parameters changes."""
    if not isinstance(arg, Ref):
        return False
    value = graph[arg.id]
    owned = value.role in (Role.PARAMETER, Role.CONSTANT)
    return owned and value.dtype is dtype and is_dense(value) and shape in (None, value.shape)


def _fold(graph: Graph, pairs: list[_Pair]) -> Graph:
    edit = Edit(graph)
    by_layer = {pair.layer: pair for pair in pairs}
    norms = {pair.norm for pair in pairs}
    taken = {task.name for task in graph.tasks}
    for t, task in enumerate(graph.tasks):
        if t in by_layer:
            result = graph.tasks[by_layer[t].norm].writes[0]
            new = _Arithmetic(edit, task, taken)
            edit.tasks.append(_folded(task, result, *new.operands(graph, by_layer[t])))
        elif t not in norms:
            edit.tasks.append(task)
    return edit.done()


def _folded(layer: Task, result: int, weight: int, bias: int) -> Task:
    """The layer with other operands, writing what its batch norm wrote."""
    if layer.op == "aten.convolution.default":
        args = (layer.args[0], Ref(weight), Ref(bias), *layer.args[3:])
    else:
        args = (Ref(bias), layer.args[0 if layer.op == "aten.mm.default" else 1], Ref(weight))
    op = "aten.addmm.default" if layer.op == "aten.mm.default" else layer.op
    task = call(layer.name, op, args, (result,), origin=layer.origin)
    return replace(task, cost=layer.cost)


class _Arithmetic:
    """Emits the tasks that compute a folded layer's weight and bias, called after the layer."""

    def __init__(self, edit: Edit, layer: Task, taken: set[str]) -> None:
        self._edit, self._layer, self._taken = edit, layer, taken

    def operands(self, graph: Graph, pair: _Pair) -> tuple[int, int]:
        spread = self._emit("spread", "add.Scalar", pair.variance, pair.epsilon)
        factor = self._emit("inverse", "rsqrt.default", spread)
        if pair.scale is not None:
            factor = self._emit("factor", "mul.Tensor", pair.scale, factor)
        if pair.bias is None:
            centre = self._emit("centre", "neg.default", pair.mean)
        else:
            centre = self._emit("centre", "sub.Tensor", pair.bias, pair.mean)
        if pair.shift is None:
            bias = self._emit("bias", "mul.Tensor", centre, factor)
        else:
            scaled = self._emit("scaled", "mul.Tensor", centre, factor)
            bias = self._emit("bias", "add.Tensor", scaled, pair.shift)
        return self._weight(graph[pair.weight], factor), bias

    def _weight(self, weight: Value, factor: int) -> int:
        if self._layer.op != "aten.convolution.default":
            return self._emit("weight", "mul.Tensor", weight.id, factor)
        given = arguments(self._layer)
        taps = (1,) * (len(weight.shape) - 2)
        if not given["transposed"]:
            shape = (weight.shape[0], 1, *taps)
            column = self._edit.add_view("factor", factor, shape, (1,) * len(shape))
            return self._emit("weight", "mul.Tensor", weight.id, column)
        # A transposed convolution's weight is [in, out / groups, ...], a group after the other.
        groups = given["groups"]
        assert isinstance(groups, int)
        inside, out = weight.shape[0] // groups, weight.shape[1]
        split = self._edit.add_view(
            weight.name,
            weight.id,
            (groups, inside, *weight.shape[1:]),
            (weight.strides[0] * inside, *weight.strides),
        )
        row = self._edit.add_view("factor", factor, (groups, 1, out, *taps), (out, 1, 1, *taps))
        scaled = self._emit("weight", "mul.Tensor", split, row)
        return self._edit.add_view("weight", scaled, weight.shape, weight.strides)

    def _emit(self, what: str, op: str, first: int, *others: int | float) -> int:
        """A task whose result looks like its first operand."""
        like = self._edit.values[first]
        name = fresh(f"{self._layer.name}.{what}", self._taken)
        self._taken.add(name)
        result = self._edit.add_root(name, Role.INTERMEDIATE, like.dtype, like.shape, like.strides)
        args = tuple(other if isinstance(other, float) else Ref(other) for other in others)
        task = call(name, f"aten.{op}", (Ref(first), *args), (result,), origin=self._layer.origin)
        self._edit.tasks.append(task)
        return result
