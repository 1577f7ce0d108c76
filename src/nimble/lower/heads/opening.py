"""What the conversions share: values looked at, images laid out, weights packed ahead of time."""

from __future__ import annotations

import math
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
)
from nimble.graph.edit import call, reading
from nimble.lower.kernels import FIXED, PANEL
from nimble.lower.layout import channels_last

_CONTIGUOUS = Symbol("memory_format", "contiguous_format")
Given = dict[str, Arg]


class Opening:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edit = Edit(graph)
        self._made: dict[tuple[object, ...], Ref] = {}
        """What was packed, flipped or laid out anew, by what it was made from."""
        self._new: list[tuple[object, ...]] = []
        self._from_fixed: set[int] = set()
        self._names = 0
        self._taken = {task.name for task in graph.tasks} | {v.name for v in graph.values}

    def begin(self) -> None:
        """Another operator is looked at."""
        self._new.clear()

    def give_up(self) -> None:
        """What was made for this operator is not going to be computed."""
        for key in self._new:
            del self._made[key]
        self._new.clear()

    def once(self, key: tuple[object, ...], make: Callable[[], Ref]) -> Ref:
        """What `make` makes, the same one for the same key."""
        if key not in self._made:
            self._made[key] = make()
            self._new.append(key)
        return self._made[key]

    def same(self, v: int) -> tuple[object, ...]:
        """What tells a value from others: two views of the same elements are one."""
        value = self.edit.values[v]
        return (self.edit.content(v).id, value.offset, value.shape, value.strides)

    def has_dtypes_for(self, task: Task) -> bool:
        """Whether all its tensors are float32, but for indices; or what is moved and no more."""
        dtypes = {self.graph[v].dtype for v in (*task.reads, *task.writes)}
        dtypes -= {DType.INT64} if task.op in _WITH_INDICES else set()
        return dtypes <= {DType.FLOAT32} or (task.op in MOVES and dtypes == {DType.BFLOAT16})

    def value(self, arg: Arg) -> Value:
        assert isinstance(arg, Ref)
        return self.edit.values[arg.id]

    def is_fixed(self, arg: Arg) -> bool:
        """Whether it is known ahead of time, or made here from what is."""
        if not isinstance(arg, Ref):
            return False
        content = self.edit.content(arg.id)
        return content.role in FIXED or content.id in self._from_fixed

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

    def task(
        self, made: list[Task], op: str, shape: tuple[int, ...], args: tuple[Arg, ...], origin: str,
        **kwargs: Arg,
    ) -> Ref:  # fmt: skip
        """A task more, and what it computes."""
        v = self.edit.add_root(self.name("pack"), Role.INTERMEDIATE, DType.FLOAT32, shape)
        made.append(call(self.edit.values[v].name, op, args, (v,), tuple(kwargs.items()), origin))
        if all(self.is_fixed(arg) for arg in args if isinstance(arg, Ref)):
            self._from_fixed.add(v)
        return Ref(v)

    def name(self, what: str) -> str:
        self._names += 1
        while f"{what}.{self._names}" in self._taken:
            self._names += 1
        return f"{what}.{self._names}"

    def packed(
        self, made: list[Task], weight: Ref, groups: int, shape: tuple[int, ...], origin: str
    ) -> Ref:
        """(out, in, taps…) → [group][panel][tap][in][PANEL], zeros where a panel is not full.

        `shape` is that of the weight with the taps as one dimension: (out, in, taps)."""
        key = ("packed", *self.same(weight.id), groups, shape)
        return self.once(key, lambda: self._pack(made, weight, groups, shape, origin))

    def packed_from(self, made: list[Task], weight: Ref, flip: bool, origin: str) -> Ref:
        """The same of (groups, out, in, taps…) however it lies, in one copy; with `flip`, of its
        taps in reverse order."""
        key = ("packed from", *self.same(weight.id), flip)
        return self.once(key, lambda: self._pack_from(made, weight, flip, origin))

    def _pack_from(self, made: list[Task], weight: Ref, flip: bool, origin: str) -> Ref:
        groups, out, channels, *taps = self.value(weight).shape
        panels = -(-out // PANEL)
        if out % PANEL:
            wide = (groups, panels * PANEL, channels, *taps)
            nothing = (0,) * len(wide)
            weight = self.task(
                made, "nimble.pad", wide, (weight,), origin, before=nothing, value=0.0
            )
        g, o, i, *steps = self.value(weight).strides
        turned = (groups, panels, *taps, channels, PANEL)
        view = self.edit.add_view("turned", weight.id, turned, (g, PANEL * o, *steps, i, o))
        copy = self._flipped(
            made, Ref(view), tuple(range(2, 2 + len(taps))) if flip else (), origin
        )
        whole = (groups, panels, math.prod(taps), channels, PANEL)
        return Ref(self.edit.add_view("packed", copy.id, whole, contiguous_strides(whole)))

    def depthwise_from(self, made: list[Task], weight: Ref, flip: bool, origin: str) -> Ref:
        """(channels, 1, 1, taps…) → [tap][channel]."""
        key = ("depthwise from", *self.same(weight.id), flip)
        return self.once(key, lambda: self._pack_depthwise_from(made, weight, flip, origin))

    def _pack_depthwise_from(self, made: list[Task], weight: Ref, flip: bool, origin: str) -> Ref:
        channels, _, _, *taps = self.value(weight).shape
        c, _, _, *steps = self.value(weight).strides
        view = self.edit.add_view("turned", weight.id, (*taps, channels), (*steps, c))
        copy = self._flipped(made, Ref(view), tuple(range(len(taps))) if flip else (), origin)
        whole = (math.prod(taps), channels)
        return Ref(self.edit.add_view("packed", copy.id, whole, contiguous_strides(whole)))

    def _flipped(self, made: list[Task], source: Ref, dims: tuple[int, ...], origin: str) -> Ref:
        shape = self.value(source).shape
        if not dims:
            return self._copied(made, source, origin)
        return self.task(made, "nimble.copy", shape, (source,), origin, flip=dims)

    def _pack(
        self, made: list[Task], weight: Ref, groups: int, shape: tuple[int, ...], origin: str
    ) -> Ref:
        out, channels, taps = shape
        each = out // groups
        whole = self.contiguous(made, weight, origin)
        split = self.edit.add_view(
            "split", whole.id, (groups, each, channels, taps),
            contiguous_strides((groups, each, channels, taps)),
        )  # fmt: skip
        source, panels = Ref(split), -(-each // PANEL)
        if each % PANEL:
            wide = (groups, panels * PANEL, channels, taps)
            pad = (0, 0, 0, 0, 0, panels * PANEL - each)
            op, args = "aten.constant_pad_nd.default", (source, pad, 0.0)
            source = self.task(made, op, wide, args, origin)
        turned = (groups, panels, taps, channels, PANEL)
        steps = (
            panels * PANEL * channels * taps, PANEL * channels * taps, 1, taps, channels * taps,
        )  # fmt: skip
        view = self.edit.add_view("turned", source.id, turned, steps)
        return self._copied(made, Ref(view), origin)

    def depthwise(self, made: list[Task], weight: Ref, taps: int, origin: str) -> Ref:
        """(channels, 1, taps…) → [tap][channel]."""
        key = ("depthwise", *self.same(weight.id))
        return self.once(key, lambda: self._pack_depthwise(made, weight, taps, origin))

    def _pack_depthwise(self, made: list[Task], weight: Ref, taps: int, origin: str) -> Ref:
        channels = self.value(weight).shape[0]
        whole = self.contiguous(made, weight, origin)
        view = self.edit.add_view("turned", whole.id, (taps, channels), (1, taps))
        return self._copied(made, Ref(view), origin)

    def contiguous(self, made: list[Task], weight: Ref, origin: str) -> Ref:
        value = self.value(weight)
        if value.strides == contiguous_strides(value.shape):
            return weight
        return self._copied(made, weight, origin)

    def in_line(self, made: list[Task], arg: Arg, origin: str) -> Arg:
        """A bias, say, as kernels read it: element beside element. Not every one lies so."""
        return self.contiguous(made, arg, origin) if isinstance(arg, Ref) else arg

    def _copied(self, made: list[Task], source: Ref, origin: str) -> Ref:
        """A contiguous copy; made ahead of time where it can be."""
        shape = self.value(source).shape
        if not self.is_fixed(source):
            return self.task(made, "nimble.copy", shape, (source,), origin)
        return self.task(made, "aten.clone.default", shape, (source,), origin,
                         memory_format=_CONTIGUOUS)  # fmt: skip

    # Images

    def image(self, made: list[Task], x: Ref, origin: str) -> Ref:
        """The image with its channels innermost, copied if need be."""
        if is_image(self.value(x)):
            return x

        def relay() -> Ref:
            laid = self._laid(self.value(x))
            made.append(call(self.name("relay"), "nimble.copy", (x,), (laid,), (), origin))
            return Ref(laid)

        return self.once(("image", *self.same(x.id)), relay)

    def with_images(self, task: Task) -> list[Task]:
        """The task, reading images that are copied to lie pixel by pixel."""
        made: list[Task] = []
        laid: dict[int, int] = {}
        for v in task.reads:
            value = self.edit.values[v]
            if len(value.shape) > 1:
                laid[v] = self._laid(value)
                name = self.name("relay")
                made.append(call(name, "nimble.copy", (Ref(v),), (laid[v],), (), task.origin))
        return [*made, reading(task, laid)]

    def as_image(self, result: int, origin: str) -> tuple[int, list[Task]]:
        """Where a kernel can write this result with channels innermost, and what copies it to its
        place if that is laid out otherwise."""
        value = self.edit.values[result]
        if is_image(value):
            return result, []
        laid = self._laid(value)
        return laid, [call(self.name("relay"), "nimble.copy", (Ref(laid),), (result,), (), origin)]

    def _laid(self, value: Value) -> int:
        return self.edit.add_root(
            f"{value.name}.channels_last", Role.INTERMEDIATE, DType.FLOAT32, value.shape,
            channels_last(value.shape),
        )  # fmt: skip


Conversion = Callable[[Opening, Task, Given], list[Task] | None]
MOVES = frozenset({"aten.embedding.default", "aten.index.Tensor", "aten.index_select.default"})
"""They take numbers as they are, in whatever dtype."""
_WITH_INDICES = {
    "aten.argmax.default",
    "aten.argmin.default",
    "aten.embedding.default",
    "aten.embedding_dense_backward.default",
    "aten.index.Tensor",
    "aten.index_select.default",
    "aten.max.dim",
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool2d_with_indices_backward.default",
    "aten.min.dim",
    "aten.topk.default",
}


def ints(arg: Arg) -> tuple[int, ...]:
    assert isinstance(arg, tuple)
    return tuple(n for n in arg if isinstance(n, int))


def spread(arg: Arg, otherwise: tuple[int, ...], dims: int = 2) -> tuple[int, ...]:
    """A number for each of the spatial dimensions."""
    found = ints(arg) if isinstance(arg, tuple) else ()
    if not found:
        return otherwise
    return found * dims if len(found) == 1 else found


def is_image(value: Value) -> bool:
    """Whether a kernel can go through it pixel by pixel, channels innermost. What has only one
    spatial dimension is an image too."""
    return len(value.shape) in (3, 4) and (value.shape[1] == 1 or value.strides[1] == 1)
