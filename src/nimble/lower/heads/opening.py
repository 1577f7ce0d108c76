"""Operators that have a kernel of our own, with their weights packed ahead of time.

A `nimble.` task says all that its kernel must know in plain arguments; weights are packed by tasks
that depend on parameters only, so that they move to the prologue.
"""

from __future__ import annotations

from collections.abc import Callable

from nimble.graph import (
    Arg,
    DType,
    Edit,
    Graph,
    Ref,
    Role,
    Symbol,
    Task,
    Value,
    contiguous_strides,
    is_dense,
)
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.lower.layout import channels_last
from nimble.rewrite import fold_constants
from nimble.rewrite.operators import arguments, pure_tasks

PANEL = 16
"""Output channels that lie side by side in packed weights."""
_FIXED = (Role.PARAMETER, Role.CONSTANT)
_MOST_TAPS, _MOST_CHANNELS = 121, 8192
_CONTIGUOUS = Symbol("memory_format", "contiguous_format")
Given = dict[str, Arg]


def open_heads(graph: Graph, supported: Supported) -> Graph:
    """Replace operators by `nimble.` ones wherever a kernel of ours computes the same."""
    opening = _Opening(graph)
    pure = pure_tasks(graph)
    for t, task in enumerate(graph.tasks):
        made = None
        if t in pure and opening.is_float32(task):
            convert = _CONVERSIONS.get(task.op)
            made = convert(opening, task, arguments(task)) if convert is not None else None
            if made is not None and not all(
                supported(opening.edit.values, t) for t in made if t.op.startswith("nimble.")
            ):
                made = None
        opening.edit.tasks.extend([task] if made is None else made)
    return fold_constants(opening.edit.done())


class _Opening:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edit = Edit(graph)
        self._packed: dict[tuple[object, ...], Ref] = {}
        self._relaid: dict[int, Ref] = {}
        self._names = 0

    def is_float32(self, task: Task) -> bool:
        """Whether all its tensors are, but for indices."""
        others = (DType.INT64,) if task.op in _WITH_INDICES else ()
        return all(
            self.graph[v].dtype in (DType.FLOAT32, *others) for v in (*task.reads, *task.writes)
        )

    def value(self, arg: Arg) -> Value:
        assert isinstance(arg, Ref)
        return self.edit.values[arg.id]

    def is_fixed(self, arg: Arg) -> bool:
        return isinstance(arg, Ref) and self.edit.content(arg.id).role in _FIXED

    def unread(self, *results: int | None) -> bool:
        graph = self.graph
        shown = {graph.content(v).id for v in graph.outputs}
        return not any(
            v is not None and (v in shown or graph.readers.get(v) or self._views_read(v))
            for v in results
        )

    def _views_read(self, v: int) -> bool:
        return any(w.base == v and self.graph.readers.get(w.id) for w in self.graph.values)

    # Packing

    def _task(
        self, made: list[Task], op: str, shape: tuple[int, ...], args: tuple[Arg, ...], origin: str,
        **kwargs: Arg,
    ) -> Ref:  # fmt: skip
        self._names += 1
        name = f"pack.{self._names}"
        v = self.edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, shape)
        made.append(call(name, op, args, (v,), tuple(kwargs.items()), origin))
        return Ref(v)

    def packed(
        self, made: list[Task], weight: Ref, groups: int, shape: tuple[int, ...], origin: str
    ) -> Ref:
        """(out, in, taps…) → [group][panel][tap][in][PANEL], zeros where a panel is not full.

        `shape` is that of the weight with the taps as one dimension: (out, in, taps)."""
        value = self.value(weight)
        key = (value.base, value.id if value.base is None else 0, value.offset, value.shape,
               value.strides, groups, shape)  # fmt: skip
        if key in self._packed:
            return self._packed[key]
        out, channels, taps = shape
        each = out // groups
        whole = self._task(made, "aten.clone.default", value.shape, (weight,), origin,
                           memory_format=_CONTIGUOUS)  # fmt: skip
        split = self.edit.add_view(
            "split", whole.id, (groups, each, channels, taps),
            contiguous_strides((groups, each, channels, taps)),
        )  # fmt: skip
        source, panels = Ref(split), -(-each // PANEL)
        if each % PANEL:
            pad = (0, 0, 0, 0, 0, panels * PANEL - each)
            wide = (groups, panels * PANEL, channels, taps)
            source = self._task(
                made, "aten.constant_pad_nd.default", wide, (source, pad, 0.0), origin
            )
        turned = (groups, panels, taps, channels, PANEL)
        steps = (
            panels * PANEL * channels * taps, PANEL * channels * taps, 1, taps, channels * taps,
        )  # fmt: skip
        view = self.edit.add_view("turned", source.id, turned, steps)
        self._packed[key] = self._task(made, "aten.clone.default", turned, (Ref(view),), origin,
                                       memory_format=_CONTIGUOUS)  # fmt: skip
        return self._packed[key]

    def depthwise(self, made: list[Task], weight: Ref, taps: int, origin: str) -> Ref:
        """(channels, 1, taps…) → [tap][channel]."""
        channels = self.value(weight).shape[0]
        whole = self._task(made, "aten.clone.default", self.value(weight).shape, (weight,), origin,
                           memory_format=_CONTIGUOUS)  # fmt: skip
        view = self.edit.add_view("turned", whole.id, (taps, channels), (1, taps))
        return self._task(made, "aten.clone.default", (taps, channels), (Ref(view),), origin,
                          memory_format=_CONTIGUOUS)  # fmt: skip

    def image(self, made: list[Task], x: Ref, origin: str) -> Ref:
        """The image with its channels innermost, copied if need be."""
        value = self.value(x)
        if value.shape[1] == 1 or value.strides[1] == 1:
            return x
        if x.id not in self._relaid:
            self._names += 1
            v = self.edit.add_root(
                f"{value.name}.channels_last", Role.INTERMEDIATE, DType.FLOAT32, value.shape,
                channels_last(value.shape),
            )  # fmt: skip
            made.append(call(f"relay.{self._names}", "nimble.copy", (x,), (v,), (), origin))
            self._relaid[x.id] = Ref(v)
        return self._relaid[x.id]

    def as_image(self, result: int, origin: str) -> tuple[int, list[Task]]:
        """Where a kernel can write this result with channels innermost, and what copies it to its
        place if that is laid out otherwise."""
        value = self.edit.values[result]
        if is_image(value):
            return result, []
        self._names += 1
        laid = self.edit.add_root(
            f"{value.name}.channels_last", Role.INTERMEDIATE, DType.FLOAT32, value.shape,
            channels_last(value.shape),
        )  # fmt: skip
        name = f"relay.{self._names}"
        return laid, [call(name, "nimble.copy", (Ref(laid),), (result,), (), origin)]


Conversion = Callable[[_Opening, Task, Given], list[Task] | None]


def _ints(arg: Arg) -> tuple[int, ...]:
    assert isinstance(arg, tuple)
    return tuple(n for n in arg if isinstance(n, int))


def is_image(value: Value) -> bool:
    """Whether a kernel can go through it pixel by pixel, channels innermost."""
    return len(value.shape) == 4 and (value.shape[1] == 1 or value.strides[1] == 1)


def _convolution(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    result = task.results[0]
    if given["transposed"] or not isinstance(x, Ref) or not isinstance(weight, Ref):
        return None
    if result is None or len(opening.value(x).shape) != 4 or not opening.is_fixed(weight):
        return None
    out, channels, high, wide = opening.value(weight).shape
    groups = given["groups"]
    assert isinstance(groups, int)
    if high * wide > _MOST_TAPS or channels > _MOST_CHANNELS or opening.value(x).numel == 0:
        return None
    if opening.edit.values[result].numel == 0:
        return None
    if bias is not None and not opening.is_fixed(bias):
        return None
    made: list[Task] = []
    depthwise = channels == 1 and groups > 1 and out == groups
    if groups > 1 and not depthwise and channels < 4:
        return None
    packed = (
        opening.depthwise(made, weight, high * wide, task.origin)
        if depthwise
        else opening.packed(made, weight, groups, (out, channels, high * wide), task.origin)
    )
    source = opening.image(made, x, task.origin)
    kwargs = (
        ("kernel", (high, wide)),
        ("stride", _pairs(given["stride"], (1, 1))),
        ("padding", _pairs(given["padding"], (0, 0))),
        ("dilation", _pairs(given["dilation"], (1, 1))),
        ("groups", groups),
    )
    op = "nimble.depthwise" if depthwise else "nimble.convolution"
    target, copies = opening.as_image(result, task.origin)
    made.append(call(task.name, op, (source, packed, bias), (target,), kwargs, task.origin))
    return [*made, *copies]


def _linear(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    """addmm(bias, x, w) and mm(x, w) with fixed w: (rows, in) by (in, out)."""
    product = task.op == "aten.mm.default"
    x, weight = (given["self"], given["mat2"]) if product else (given["mat1"], given["mat2"])
    bias = None if product else given["self"]
    result = task.results[0]
    if not isinstance(x, Ref) or not isinstance(weight, Ref) or not opening.is_fixed(weight):
        return None
    if not product and (given["beta"] != 1 or given["alpha"] != 1 or not opening.is_fixed(bias)):
        return None
    source, w = opening.value(x), opening.value(weight)
    if result is None or source.numel == 0 or w.numel == 0 or source.shape[1] > 2**20:
        return None
    if isinstance(bias, Ref) and opening.value(bias).shape != (w.shape[1],):
        return None
    if source.strides[1] != 1 and source.shape[1] > 1:
        return None
    made: list[Task] = []
    turned = opening.edit.add_view("weight", weight.id, w.shape[::-1], w.strides[::-1])
    packed = opening.packed(made, Ref(turned), 1, (w.shape[1], w.shape[0], 1), task.origin)
    return [
        *made,
        call(task.name, "nimble.linear", (x, packed, bias), (result,), (), task.origin),
    ]


def _layer_norm(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    x, shape, eps = given["input"], given["normalized_shape"], given["eps"]
    if not isinstance(x, Ref) or not opening.unread(*task.results[1:]):
        return None
    value = opening.value(x)
    if len(_ints(shape)) != 1 or value.numel == 0 or value.strides[-1] != 1:
        return None
    args = (x, given["weight"], given["bias"])
    kwargs = (("eps", eps),)
    return [call(task.name, "nimble.layer_norm", args, (task.results[0],), kwargs, task.origin)]


def _pairs(arg: Arg, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    found = _ints(arg) if isinstance(arg, tuple) else ()
    if not found:
        return otherwise
    return found * 2 if len(found) == 1 else found


def _pool(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    x, result = given["self"], task.results[0]
    if not isinstance(x, Ref) or result is None or not opening.unread(*task.results[1:]):
        return None
    if not is_image(opening.value(x)) or not is_image(opening.edit.values[result]):
        return None
    if opening.value(x).numel == 0:
        return None
    kernel = _pairs(given["kernel_size"], ())
    kwargs: list[tuple[str, Arg]] = [
        ("kernel", kernel),
        ("stride", _pairs(given["stride"], kernel)),
        ("padding", _pairs(given["padding"], (0, 0))),
        ("dilation", _pairs(given.get("dilation", ()), (1, 1))),
    ]
    kind = "max" if task.op.startswith("aten.max") else "mean"
    if kind == "mean":
        kwargs.append(("counts_padding", given["count_include_pad"]))
        kwargs.append(("divisor", given["divisor_override"] or 0))
    kwargs.append(("kind", kind))
    return [call(task.name, "nimble.pool", (x,), (result,), tuple(kwargs), task.origin)]


def _mean(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    x, dims = given["self"], given["dim"]
    if not isinstance(x, Ref) or not isinstance(dims, tuple) or given["dtype"] is not None:
        return None
    value = opening.value(x)
    if value.numel == 0 or not dims:
        return None
    over = tuple(sorted(d % len(value.shape) for d in _ints(dims)))
    kind = task.op.split(".")[1]
    kwargs = (("dims", over), ("kind", kind))
    return [call(task.name, "nimble.reduce", (x,), task.results, kwargs, task.origin)]


def _embedding(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
    table, indices = given["weight"], given["indices"]
    if not isinstance(table, Ref) or not isinstance(indices, Ref):
        return None
    if opening.value(indices).dtype is not DType.INT64 or opening.value(table).strides[1] != 1:
        return None
    if not is_dense(opening.value(indices)) or opening.value(indices).numel == 0:
        return None
    return [call(task.name, "nimble.gather", (table, indices), task.results, (), task.origin)]


def _attention(opening: _Opening, task: Task, given: Given) -> list[Task] | None:
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
    room = panels * (dim + _ATTENTION_ROWS)
    room += 0 if value_dim % PANEL == 0 else -(-value_dim // PANEL) * PANEL * keys
    scratch = opening.edit.add_root(
        f"{task.name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (room,)
    )
    scale = given["scale"] if isinstance(given["scale"], float) else dim**-0.5
    kwargs = (("causal", given["is_causal"]), ("scale", scale))
    args = (*tensors, mask)
    return [call(task.name, "nimble.attention", args, (result, scratch), kwargs, task.origin)]


_WITH_INDICES = ("aten.embedding.default", "aten.max_pool2d_with_indices.default")
_ATTENTION_ROWS = 6
"""Queries whose scores are kept at once: kAttentionRows of native/kernels/attention.h."""
_CONVERSIONS: dict[str, Conversion] = {
    "aten.convolution.default": _convolution,
    "aten.addmm.default": _linear,
    "aten.mm.default": _linear,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.max_pool2d_with_indices.default": _pool,
    "aten.avg_pool2d.default": _pool,
    "aten.mean.dim": _mean,
    "aten.sum.dim_IntList": _mean,
    "aten.embedding.default": _embedding,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
}
