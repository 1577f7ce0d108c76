"""Which dimensions of an op's operands and results run together, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from nimble.graph import Arg, Graph, Ref, Task, Value, refs
from nimble.rewrite.operators import arguments, is_pointwise

Labels: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True, slots=True)
class Axes:
    """A label for every dimension, as in `ik,kj->ij`.

    Where a result and operands share a label, part i of the result along it depends only on part i
    of each of those operands, and by the same function for every i. None promises nothing; an
    operand that is not listed is read as a whole.
    """

    operands: tuple[tuple[int, Labels], ...]
    results: tuple[Labels, ...]
    unread: tuple[int, ...] = ()
    """Operands of which only the shape matters."""


class Call:
    """A task with its operands by name."""

    def __init__(self, graph: Graph, task: Task) -> None:
        self.graph, self.task, self.given = graph, task, arguments(task)
        self.results = [graph[v] for v in task.results if v is not None]

    def value(self, name: str) -> Value:
        arg = self.given[name]
        assert isinstance(arg, Ref)
        return self.graph[arg.id]

    @property
    def first(self) -> Value:
        return self.graph[next(v for arg in self.task.args for v in refs(arg))]

    def list(self, name: str) -> list[Value]:
        return [self.graph[v] for v in refs(self.given[name])]

    def number(self, name: str) -> int:
        arg = self.given[name]
        assert isinstance(arg, int)
        return arg


Rule: TypeAlias = Callable[[Call], "Axes | None"]


def axes_of(graph: Graph, task: Task) -> Axes | None:
    """The axes of a task, None where nothing is known of its op."""
    if is_pointwise(task.op):
        return _pointwise(Call(graph, task))
    rule = _RULES.get(task.op.removeprefix("aten.").split(".")[0])
    return None if rule is None else rule(Call(graph, task))


def _all(value: Value) -> Labels:
    return tuple(range(len(value.shape)))


def _without(value: Value, dims: Iterable[int]) -> Labels:
    rank = len(value.shape)
    mixed = {d % rank for d in dims} if rank else set()
    return tuple(None if d in mixed else d for d in range(rank))


def _broadcast(value: Value, rank: int) -> Labels:
    """Labels of an operand that is aligned with the last of `rank` dimensions."""
    return tuple(range(rank - len(value.shape), rank))


def _dims(arg: Arg, rank: int) -> tuple[int, ...]:
    """A `dim` argument: one, several, or all where it is None or empty."""
    if isinstance(arg, int):
        return (arg,)
    chosen = tuple(d for d in arg if isinstance(d, int)) if isinstance(arg, tuple) else ()
    return chosen or tuple(range(rank))


def _pointwise(call: Call) -> Axes:
    rank = max((len(r.shape) for r in call.results), default=0)
    operands = tuple(
        (v, _broadcast(call.graph[v], rank)) for arg in call.given.values() for v in refs(arg)
    )
    return Axes(operands, tuple(_all(r) for r in call.results))


def _mixes(*names: str) -> Rule:
    """`self` in, results of the same rank out; mixes along the dimensions in these arguments."""

    def rule(call: Call) -> Axes:
        x = call.first
        dims = [d for name in names for d in _dims(call.given.get(name), len(x.shape))]
        results = tuple(_without(r, dims) for r in call.results)
        return Axes(((x.id, _without(x, dims)),), results)

    return rule


def _mixes_last(count: int) -> Rule:
    """`self` in, results of the same rank out; mixes along the last `count` dimensions."""

    def rule(call: Call) -> Axes:
        x = call.first
        dims = range(-min(count, len(x.shape)), 0)
        return Axes(((x.id, _without(x, dims)),), tuple(_without(r, dims) for r in call.results))

    return rule


def _keeps_first(*names: str) -> Rule:
    """Only the first dimension of these operands and of the results runs together."""

    def rule(call: Call) -> Axes:
        values = [call.value(name) for name in names]
        return Axes(
            tuple((v.id, _first(v)) for v in values), tuple(_first(r) for r in call.results)
        )

    return rule


def _first(value: Value) -> Labels:
    return tuple(0 if d == 0 else None for d in range(len(value.shape)))


def _reduce(call: Call) -> Axes:
    x = call.first
    rank = len(x.shape)
    reduced = {d % rank for d in _dims(call.given.get("dim"), rank)} if rank else set()
    kept = _without(x, reduced)
    keeps_rank = any(len(r.shape) == rank for r in call.results)
    shown = kept if keeps_rank else tuple(label for label in kept if label is not None)
    return Axes(((x.id, kept),), tuple(shown for _ in call.results))


def _pad(call: Call) -> Axes:
    x, pad = call.value("self"), call.given["pad"]
    assert isinstance(pad, tuple)
    dims = [-1 - i // 2 for i, amount in enumerate(pad) if amount != 0]
    return Axes(((x.id, _without(x, dims)),), tuple(_without(r, dims) for r in call.results))


def _layer_norm(call: Call) -> Axes:
    x, shape = call.value("input"), call.given["normalized_shape"]
    assert isinstance(shape, tuple)
    dims = range(-len(shape), 0)
    return Axes(((x.id, _without(x, dims)),), tuple(_without(r, dims) for r in call.results))


def _batch_norm(call: Call) -> Axes | None:
    if call.given.get("training", False) is not False:
        return None
    x = call.value("input")
    vectors = [call.given[n] for n in ("weight", "bias", "running_mean", "running_var")]
    channels = tuple((v, (1,)) for vector in vectors for v in refs(vector))
    nothing = tuple((None,) * len(r.shape) for r in call.results[1:])
    return Axes(((x.id, _all(x)), *channels), (_all(x), *nothing))


def _product(*letters: str) -> Rule:
    """A product of matrices as in einsum: names of operands with their letters, then the result."""
    *operands, result = letters
    named = [operand.split(":") for operand in operands]

    def labels(text: str) -> Labels:
        return tuple(result.index(c) if c in result else None for c in text)

    def rule(call: Call) -> Axes:
        pairs = [(call.value(name).id, labels(text)) for name, text in named]
        if "self" in call.given and all(name != "self" for name, _ in named):
            added = call.value("self")
            pairs.append((added.id, _broadcast(added, len(result))))
        return Axes(tuple(pairs), (tuple(range(len(result))),))

    return rule


def _cat(call: Call) -> Axes:
    values, dim = call.list("tensors"), call.number("dim")
    return Axes(
        tuple((v.id, _without(v, (dim,))) for v in values if v.shape != (0,)),
        tuple(_without(r, (dim,)) for r in call.results),
    )


def _stack(call: Call) -> Axes:
    values, rank = call.list("tensors"), len(call.results[0].shape)
    dim = call.number("dim") % rank
    labels = tuple(d for d in range(rank) if d != dim)
    return Axes(tuple((v.id, labels) for v in values), (_without(call.results[0], (dim,)),))


def _embedding(call: Call) -> Axes:
    indices = call.value("indices")
    return Axes(((indices.id, _all(indices)),), ((*_all(indices), None),))


def _index_select(call: Call) -> Axes:
    x, dim = call.value("self"), call.number("dim")
    return Axes(((x.id, _without(x, (dim,))),), (_without(x, (dim,)),))


def _gather(call: Call) -> Axes:
    x, index = call.value("self"), call.value("index")
    dim = call.number("dim")
    return Axes(((x.id, _without(x, (dim,))), (index.id, _all(index))), (_all(index),))


def _index(call: Call) -> Axes | None:
    """`x[:, :, index]`: the dimensions of one index stand where the dimension it picks from was."""
    x, given = call.value("self"), call.given["indices"]
    assert isinstance(given, tuple)
    places = [i for i, arg in enumerate(given) if arg is not None]
    if len(places) != 1:
        return None
    at, (index,) = places[0], call.list("indices")
    if index.dtype == "bool" or index.dtype == "uint8":
        return None
    wide, rank = len(index.shape), len(call.results[0].shape)
    before, after = tuple(range(at)), tuple(range(at + wide, rank))
    return Axes(
        ((x.id, (*before, None, *after)), (index.id, tuple(range(at, at + wide)))),
        (tuple(range(rank)),),
    )


def _overwrite(name: str) -> Rule:
    """`self` filled with another tensor, of which nothing but the shape is left."""

    def rule(call: Call) -> Axes:
        x, source = call.value("self"), call.value(name)
        return Axes(((source.id, _broadcast(source, len(x.shape))),), (_all(x),), unread=(x.id,))

    return rule


def _slice_scatter(call: Call) -> Axes:
    x, source, dim = call.value("self"), call.value("src"), call.number("dim")
    labels = _without(x, (dim,))
    return Axes(((x.id, labels), (source.id, labels)), (labels,))


def _select_scatter(call: Call) -> Axes:
    x, source, dim = call.value("self"), call.value("src"), call.number("dim")
    labels = _without(x, (dim,))
    kept = tuple(label for label in labels if label is not None)
    return Axes(((x.id, labels), (source.id, kept)), (labels,))


def _attention(call: Call) -> Axes | None:
    if call.given.get("dropout_p") != 0.0:
        return None
    operands: list[tuple[int, Labels]] = [
        (call.value("query").id, (0, 1, 2, None)),
        (call.value("key").id, (0, 1, None, None)),
        (call.value("value").id, (0, 1, None, 3)),
    ]
    for mask in refs(call.given.get("attn_mask")):
        labels = _broadcast(call.graph[mask], 4)
        operands.append((mask, (*labels[:-1], None)))
    return Axes(tuple(operands), ((0, 1, 2, 3), *((0, 1, 2) for _ in call.results[1:])))


def _recurrent_layer(call: Call) -> Axes | None:
    """One layer over a whole sequence: [time, batch, channels] and two states [batch, channels]."""
    if call.given["batch_sizes"] != () or len(call.value("hx_").shape) != 2:
        return None
    states = tuple((call.value(name).id, (0, None)) for name in ("hx_", "cx_"))
    ahead = ((None, 0, None), (0, None), (0, None))
    rest = tuple((None,) * len(r.shape) for r in call.results[3:])
    return Axes(((call.value("input").id, (None, 0, None)), *states), (*ahead, *rest))


_RULES: dict[str, Rule] = {
    "_adaptive_avg_pool2d": _mixes_last(2),
    "_adaptive_avg_pool3d": _mixes_last(3),
    "_fft_c2c": _mixes("dim"),
    "_fft_c2r": _mixes("dim"),
    "_fft_r2c": _mixes("dim"),
    "_log_softmax": _mixes("dim"),
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_softmax": _mixes("dim"),
    "adaptive_max_pool2d": _mixes_last(2),
    "adaptive_max_pool3d": _mixes_last(3),
    "addmm": _product("mat1:ik", "mat2:kj", "ij"),
    "all": _reduce,
    "amax": _reduce,
    "amin": _reduce,
    "any": _reduce,
    "argmax": _reduce,
    "argmin": _reduce,
    "argsort": _mixes("dim"),
    "avg_pool1d": _mixes_last(1),
    "avg_pool2d": _mixes_last(2),
    "avg_pool3d": _mixes_last(3),
    "baddbmm": _product("batch1:bik", "batch2:bkj", "bij"),
    "bmm": _product("self:bik", "mat2:bkj", "bij"),
    "cat": _cat,
    "constant_pad_nd": _pad,
    "convolution": _keeps_first("input"),
    "copy": _overwrite("src"),
    "cummax": _mixes("dim"),
    "cummin": _mixes("dim"),
    "cumprod": _mixes("dim"),
    "cumsum": _mixes("dim"),
    "embedding": _embedding,
    "fill": _overwrite("value"),
    "flip": _mixes("dims"),
    "gather": _gather,
    "glu": _mixes("dim"),
    "grid_sampler_2d": _keeps_first("input", "grid"),
    "index": _index,
    "index_select": _index_select,
    "linalg_vector_norm": _reduce,
    "logcumsumexp": _mixes("dim"),
    "logsumexp": _reduce,
    "max": _reduce,
    "max_pool2d_with_indices": _mixes_last(2),
    "max_pool3d_with_indices": _mixes_last(3),
    "mean": _reduce,
    "median": _reduce,
    "min": _reduce,
    "mkldnn_rnn_layer": _recurrent_layer,
    "mm": _product("self:ik", "mat2:kj", "ij"),
    "mv": _product("self:ik", "vec:k", "i"),
    "native_batch_norm": _batch_norm,
    "native_group_norm": _keeps_first("input"),
    "native_layer_norm": _layer_norm,
    "norm": _reduce,
    "pixel_shuffle": _mixes_last(3),
    "pixel_unshuffle": _mixes_last(3),
    "prod": _reduce,
    "reflection_pad1d": _mixes_last(1),
    "reflection_pad2d": _mixes_last(2),
    "reflection_pad3d": _mixes_last(3),
    "replication_pad1d": _mixes_last(1),
    "replication_pad2d": _mixes_last(2),
    "replication_pad3d": _mixes_last(3),
    "roll": _mixes("dims"),
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "sort": _mixes("dim"),
    "stack": _stack,
    "std": _reduce,
    "sum": _reduce,
    "topk": _mixes("dim"),
    "tril": _mixes_last(2),
    "triu": _mixes_last(2),
    "upsample_bicubic2d": _mixes_last(2),
    "upsample_bilinear2d": _mixes_last(2),
    "upsample_linear1d": _mixes_last(1),
    "upsample_nearest1d": _mixes_last(1),
    "upsample_nearest2d": _mixes_last(2),
    "upsample_nearest3d": _mixes_last(3),
    "upsample_trilinear3d": _mixes_last(3),
    "var": _reduce,
    "var_mean": _reduce,
}
