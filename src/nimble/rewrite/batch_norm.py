"""Fold a batch norm with fixed statistics into the convolutions or linear layers before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from nimble.graph import (
    Arg,
    DType,
    Edit,
    Graph,
    Ref,
    Role,
    Task,
    Value,
    call,
    fresh,
    is_dense,
    refs,
)
from nimble.rewrite.constants import fold_constants
from nimble.rewrite.operators import arguments, pure_tasks

_NORMS = {
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten.cudnn_batch_norm.default",
}
_WEIGHTS = {
    "aten.convolution.default": "weight",
    "aten.addmm.default": "mat2",
    "aten.mm.default": "mat2",
}
# A folded weight is rounded once more than eager rounds it. In half precision that is an error of
# up to 2^-9 in every weight, as large as that of the result itself, so those are left alone.
_FOLDED_DTYPES = {DType.FLOAT32, DType.FLOAT64}


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution or linear layer, and the first channel of the batch norm that it makes."""

    task: int
    channel: int


@dataclass(frozen=True, slots=True)
class _Match:
    """A batch norm, its operands, and the layers that make all of its channels."""

    norm: int
    between: int
    layers: tuple[_Layer, ...]
    scale: int | None
    shift: int | None
    mean: int
    variance: int
    epsilon: float


def fold_batch_norm(graph: Graph) -> Graph:
    """Scale the weights and shift the bias of every layer that only a batch norm reads.

    `(layer(x) - mean) / sqrt(variance + epsilon) * scale + shift` is the same layer with other
    weights, which the prologue computes. Between layer and batch norm there may be tasks that
    only move channels: a concatenation of layers, a copy of a cropped image.
    """
    while matches := _matches(graph):
        graph = fold_constants(_fold(graph, matches))
    return graph


def _matches(graph: Graph) -> list[_Match]:
    search = _Search(graph)
    found = (search.match(t) for t, task in enumerate(graph.tasks) if task.op in _NORMS)
    return [match for match in found if match is not None]


class _Search:
    """Looks from a batch norm back to the layers before it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._pure = pure_tasks(graph)
        self._uses = Counter(graph.content(v).id for v in graph.outputs)
        for task in graph.tasks:
            self._uses.update({graph.content(v).id for v in task.reads})

    def match(self, t: int) -> _Match | None:
        graph, norm = self._graph, self._graph.tasks[t]
        given = arguments(norm)
        if t not in self._pure or given.get("training", False) is not False:
            return None
        if any(self._uses[v] for v in norm.writes[1:]) or not isinstance(given["input"], Ref):
            return None
        before, after = graph[given["input"].id], graph[norm.writes[0]]
        if not before.is_root or before.dtype not in _FOLDED_DTYPES:
            return None
        if (before.dtype, before.shape, before.strides) != (
            after.dtype,
            after.shape,
            after.strides,
        ):
            return None
        vectors = [given[n] for n in ("weight", "bias", "running_mean", "running_var")]
        if not all(
            v is None or _is_fixed(graph, v, after.dtype, after.shape[1:2]) for v in vectors
        ):
            return None
        scale, shift, mean, variance = (v.id if isinstance(v, Ref) else None for v in vectors)
        epsilon = given["eps" if "eps" in given else "epsilon"]
        layers = self._layers(before.id, 0)
        if mean is None or variance is None or not isinstance(epsilon, float) or layers is None:
            return None
        return _Match(t, before.id, tuple(layers), scale, shift, mean, variance, epsilon)

    def _layers(self, v: int, channel: int) -> list[_Layer] | None:
        """The layers that make the channels of a value, from `channel` on; None if others do."""
        graph, content = self._graph, self._graph.content(v)
        t = graph.writer.get(content.id)
        if t is None or t not in self._pure or self._uses[content.id] != 1:
            return None
        if graph[v].base is not None and not _is_crop(graph[v], content):
            return None
        task = graph.tasks[t]
        if task.op in _WEIGHTS:
            return [_Layer(t, channel)] if self._is_foldable(task) else None
        given = arguments(task)
        if task.op == "aten.clone.default" and isinstance(given["self"], Ref):
            return self._layers(given["self"].id, channel)
        if task.op != "aten.cat.default" or given["dim"] not in (1, 1 - len(content.shape)):
            return None
        found: list[_Layer] = []
        for part in refs(given["tensors"]):
            layers = self._layers(part, channel)
            if layers is None:
                return None
            found += layers
            channel += graph[part].shape[1]
        return found if len({layer.task for layer in found}) == len(found) else None

    def _is_foldable(self, layer: Task) -> bool:
        graph, given = self._graph, arguments(layer)
        made = graph[layer.writes[0]]
        bias = _bias(layer)
        return (
            (given.get("beta", 1), given.get("alpha", 1)) == (1, 1)
            and (bias is None or _is_fixed(graph, bias, made.dtype, made.shape[1:2]))
            and _is_fixed(graph, given[_WEIGHTS[layer.op]], made.dtype)
        )


def _bias(layer: Task) -> Arg:
    return arguments(layer).get("self" if layer.op == "aten.addmm.default" else "bias")


def _is_fixed(graph: Graph, arg: Arg, dtype: DType, shape: tuple[int, ...] | None = None) -> bool:
    """Whether an argument is a dense tensor that only a change of the parameters changes."""
    if not isinstance(arg, Ref):
        return False
    value = graph[arg.id]
    owned = value.role in (Role.PARAMETER, Role.CONSTANT)
    return owned and value.dtype is dtype and is_dense(value) and shape in (None, value.shape)


def _is_crop(view: Value, whole: Value) -> bool:
    """Whether a view is a box cut out of a dense value, with all of its channels."""
    if view.dtype is not whole.dtype or len(view.shape) != len(whole.shape) or not is_dense(whole):
        return False
    rest = view.offset // view.dtype.itemsize
    dims = [d for d in range(len(whole.shape)) if whole.shape[d] != 1]
    for d in sorted(dims, key=lambda d: -whole.strides[d]):
        first, rest = divmod(rest, whole.strides[d])
        if view.strides[d] != whole.strides[d] or first + view.shape[d] > whole.shape[d]:
            return False
    return view.shape[1] == whole.shape[1] and rest == 0


def _fold(graph: Graph, matches: list[_Match]) -> Graph:
    edit = Edit(graph)
    folded = {layer.task: (match, layer) for match in matches for layer in match.layers}
    results = {match.between: graph.tasks[match.norm].writes[0] for match in matches}
    norms = {match.norm for match in matches}
    taken = {task.name for task in graph.tasks}
    for t, task in enumerate(graph.tasks):
        if t in norms:
            continue
        if t in folded:
            weight, bias = _Arithmetic(edit, task, taken).operands(*folded[t])
            task = _with_operands(task, weight, bias)
        if any(v in results for v in task.writes):
            result = (results[task.writes[0]],)
            task = replace(task, writes=result, results=result)
        edit.tasks.append(task)
    return edit.done()


def _with_operands(layer: Task, weight: int, bias: int) -> Task:
    if layer.op == "aten.convolution.default":
        args = (layer.args[0], Ref(weight), Ref(bias), *layer.args[3:])
    else:
        args = (Ref(bias), layer.args[0 if layer.op == "aten.mm.default" else 1], Ref(weight))
    op = "aten.addmm.default" if layer.op == "aten.mm.default" else layer.op
    return replace(call(layer.name, op, args, layer.results, origin=layer.origin), cost=layer.cost)


class _Arithmetic:
    """Emits the tasks that compute a folded layer's weight and bias, called after the layer."""

    def __init__(self, edit: Edit, layer: Task, taken: set[str]) -> None:
        self._edit, self._task, self._taken = edit, layer, taken
        self._channels = edit.values[layer.writes[0]].shape[1]

    def operands(self, match: _Match, layer: _Layer) -> tuple[int, int]:
        """Ids of the new weight and the new bias."""
        scale, shift, mean, variance = (
            None if vector is None else self._part(vector, layer.channel)
            for vector in (match.scale, match.shift, match.mean, match.variance)
        )
        assert mean is not None
        assert variance is not None
        spread = self._emit("spread", "add.Scalar", variance, match.epsilon)
        factor = self._emit("inverse", "rsqrt.default", spread)
        if scale is not None:
            factor = self._emit("factor", "mul.Tensor", scale, factor)
        old = _bias(self._task)
        if isinstance(old, Ref):
            centre = self._emit("centre", "sub.Tensor", old.id, mean)
        else:
            centre = self._emit("centre", "neg.default", mean)
        if shift is None:
            bias = self._emit("bias", "mul.Tensor", centre, factor)
        else:
            scaled = self._emit("scaled", "mul.Tensor", centre, factor)
            bias = self._emit("bias", "add.Tensor", scaled, shift)
        return self._weight(factor), bias

    def _part(self, vector: int, channel: int) -> int:
        """The part of a batch norm's vector that is for this layer."""
        value = self._edit.values[vector]
        if value.shape == (self._channels,):
            return vector
        offset = channel * value.dtype.itemsize
        return self._edit.add_view(value.name, vector, (self._channels,), (1,), offset)

    def _weight(self, factor: int) -> int:
        given = arguments(self._task)
        held = given[_WEIGHTS[self._task.op]]
        assert isinstance(held, Ref)
        weight = self._edit.values[held.id]
        if self._task.op != "aten.convolution.default":
            return self._emit("weight", "mul.Tensor", weight.id, factor)
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
        name = fresh(f"{self._task.name}.{what}", self._taken)
        self._taken.add(name)
        result = self._edit.add_root(name, Role.INTERMEDIATE, like.dtype, like.shape, like.strides)
        args = tuple(other if isinstance(other, float) else Ref(other) for other in others)
        task = call(name, f"aten.{op}", (Ref(first), *args), (result,), origin=self._task.origin)
        self._edit.tasks.append(task)
        return result
