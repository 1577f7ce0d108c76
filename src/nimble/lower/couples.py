"""Products by weights in bfloat16 multiply two numbers at a time, where the machine can.

A kernel then takes rows and weights in bfloat16, and gives its sums in float32. Weights are half as
many bytes, and there are half as many multiplications.
"""

from __future__ import annotations

from nimble.graph import DType, Edit, Graph, Ref, Role, Task
from nimble.graph import contiguous_strides as contiguous
from nimble.graph.edit import call
from nimble.lower.kernels import PANEL, Supported
from nimble.lower.layout import channels_last
from nimble.lower.winograd import is_candidate
from nimble.rewrite import fold_constants

_PRODUCTS = ("nimble.convolution", "nimble.linear")
_NARROW = DType.BFLOAT16
_CONVERSION = "aten._to_copy.default"
_LEAST_CHANNELS = 64
"""Results of each number that is rounded, to make up for that."""


def multiply_in_bfloat16(graph: Graph, supported: Supported) -> Graph:
    if graph.prologue is None:
        return graph
    couples = _Couples(graph, graph.prologue, supported)
    for task in graph.tasks:
        couples.take(task)
    return couples.done()


class _Couples:
    def __init__(self, graph: Graph, prologue: Graph, supported: Supported) -> None:
        self._graph = graph
        self._supported = supported
        self._edit = Edit(graph)
        self._found = False
        self._narrow = _from_bfloat16(prologue)
        """Names of constants that are computed from numbers in bfloat16."""
        self._made: dict[tuple[object, ...], Ref] = {}
        """What is there in bfloat16, by what it was made from."""

    def done(self) -> Graph:
        return fold_constants(self._edit.done()) if self._found else self._graph

    def take(self, task: Task) -> None:
        coupled = self._coupled(task) if task.op in _PRODUCTS else None
        self._found = self._found or coupled is not None
        self._edit.tasks += [task] if coupled is None else coupled

    def _coupled(self, task: Task) -> list[Task] | None:
        x, weight, *rest = task.args
        if not isinstance(x, Ref) or not isinstance(weight, Ref):
            return None
        if not self._is_narrow(weight) or self._graph[weight.id].shape[3] % 2:
            return None
        if is_candidate(self._graph, task):  # Winograd's algorithm gains more, in float32.
            return None
        if self._graph[task.writes[0]].shape[1] < _LEAST_CHANNELS:
            return None
        made: list[Task] = []
        before = dict(self._made)
        args = (self._round(made, x, task.origin), self._pack(made, weight, task.origin), *rest)
        product = call(task.name, task.op, args, task.results, task.kwargs, task.origin)
        if not self._supported(self._edit.values, product):
            self._made = before
            return None
        return [*made, product]

    def _is_narrow(self, weight: Ref) -> bool:
        value = self._graph[weight.id]
        return value.is_root and value.role is Role.CONSTANT and value.name in self._narrow

    def _round(self, made: list[Task], x: Ref, origin: str) -> Ref:
        """The numbers in bfloat16, those of a row or a pixel side by side."""
        value = self._graph[x.id]
        key = (self._graph.content(x.id).id, value.offset, value.shape, value.strides)
        if key not in self._made:
            strides = (
                contiguous(value.shape) if len(value.shape) < 3 else channels_last(value.shape)
            )
            self._made[key] = self._converted(made, x, value.shape, strides, origin)
        return self._made[key]

    def _pack(self, made: list[Task], weight: Ref, origin: str) -> Ref:
        """[group][panel][tap][in][PANEL] → [group][panel][tap][in / 2][PANEL][2]."""
        key = (weight.id,)
        if key not in self._made:
            value = self._graph[weight.id]
            *before, inside, _ = value.shape
            shape = (*before, inside // 2, PANEL, 2)
            strides = (*value.strides[:3], 2 * PANEL, 1, PANEL)
            turned = self._edit.add_view(f"{value.name}.couples", weight.id, shape, strides)
            packed = self._converted(made, Ref(turned), shape, contiguous(shape), origin)
            flat = (*before, inside // 2, 2 * PANEL)
            view = self._edit.add_view(f"{value.name}.packed", packed.id, flat, contiguous(flat))
            self._made[key] = Ref(view)
        return self._made[key]

    def _converted(
        self,
        made: list[Task],
        x: Ref,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        origin: str,
    ) -> Ref:
        name = f"{self._edit.values[x.id].name}.{_NARROW}"
        root = self._edit.add_root(name, Role.INTERMEDIATE, _NARROW, shape, strides)
        made.append(call(name, _CONVERSION, (x,), (root,), (("dtype", _NARROW),), origin))
        return Ref(root)


def _from_bfloat16(prologue: Graph) -> set[str]:
    """The outputs of which every number is computed from some in bfloat16 alone, by name."""
    known = {value.id for value in prologue.roots() if value.dtype is DType.BFLOAT16}
    for task in prologue.tasks:
        if task.reads and all(prologue.content(v).id in known for v in task.reads):
            known.update(task.writes)
    return {prologue[v].name for v in prologue.outputs if v in known}
