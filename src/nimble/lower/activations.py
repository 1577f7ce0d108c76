"""SiLU, hard-swish and GELU that a model spells out in pointwise operators.

As one operator each is the end of the convolution or product before it; spelled out, it would read
that one's result twice and could not be.
"""

from __future__ import annotations

import math
from collections import Counter

from nimble.graph import Arg, DType, Edit, Graph, Ref, Task
from nimble.graph.edit import call
from nimble.rewrite import remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks

_MULTIPLY = ("aten.mul.Tensor", "aten.mul.Scalar")
_DIVIDE = ("aten.div.Tensor", "aten.div.Scalar")
_ADD = ("aten.add.Tensor", "aten.add.Scalar")
_CLAMP = {"aten.hardtanh.default": ("min_val", "max_val"), "aten.clamp.default": ("min", "max")}
Found = tuple[str, int, tuple[tuple[str, Arg], ...]]
"""An operator, what it is of, and its options."""
Product = tuple[float, list[int]]
"""A number times some values."""


def recognise_activations(graph: Graph) -> Graph:
    pattern = _Pattern(graph)
    edit = Edit(graph)
    found = False
    for t, task in enumerate(graph.tasks):
        made = pattern.activation(t)
        found |= made is not None
        edit.tasks.append(made or task)
    return remove_dead_tasks(edit.done()) if found else graph


class _Pattern:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._pure = pure_tasks(graph)
        self._uses = Counter(graph.content(v).id for task in graph.tasks for v in task.reads)
        self._uses.update(graph.content(v).id for v in graph.outputs)

    def activation(self, t: int) -> Task | None:
        task = self._graph.tasks[t]
        if t not in self._pure or task.op not in (*_MULTIPLY, *_DIVIDE):
            return None
        (result,) = task.writes
        number, values = self._product(result, whole=True)
        ways = (values, values[::-1]) if len(values) == 2 else (values,)
        found = next(filter(None, (self._named(number, way) for way in ways)), None)
        if found is None:
            return None
        op, x, options = found
        value, source = self._graph[result], self._graph[x]
        if (source.dtype, source.shape) != (value.dtype, value.shape):
            return None
        return call(task.name, op, (Ref(x),), task.results, options, task.origin)

    def _named(self, number: float, values: list[int]) -> Found | None:
        if len(values) == 1 and _is(number, 1 / 6):
            x = self._six(values[0])
            return None if x is None else ("aten.hardsigmoid.default", x, ())
        if len(values) != 2:
            return None
        x, other = values
        if _is(number, 1.0) and self._of(other, "aten.sigmoid.default") == x:
            return "aten.silu.default", x, ()
        if _is(number, 1.0) and self._of(other, "aten.hardsigmoid.default") == x:
            return "aten.hardswish.default", x, ()
        if _is(number, 1 / 6) and self._six(other) == x:
            return "aten.hardswish.default", x, ()
        inside = self._plus(other, 1.0) if _is(number, 0.5) else None
        if inside is None:
            return None
        erf, tanh = (self._of(inside, f"aten.{name}.default") for name in ("erf", "tanh"))
        if erf is not None and self._is_product(erf, math.sqrt(0.5), [x]):
            return "aten.gelu.default", x, ()
        if tanh is not None and self._is_cubic(tanh, x):
            return "aten.gelu.default", x, (("approximate", "tanh"),)
        return None

    def _is_cubic(self, v: int, x: int) -> bool:
        """Whether v is √(2/π) (x + 0.044715 x³), in either of the ways to write it."""
        number, values = self._product(v)
        if not _is(number, math.sqrt(2 / math.pi)):
            return False
        if len(values) == 2 and x in values:
            inside = self._plus(values[1 - values.index(x)], 1.0)
            return inside is not None and self._is_product(inside, _CUBIC, [x, x])
        if len(values) != 1 or (sum_ := self._written(values[0], _ADD)) is None:
            return False
        for one, other, alpha in (
            (sum_["self"], sum_["other"], sum_["alpha"]),
            (sum_["other"], sum_["self"], 1),
        ):
            if one == Ref(x) and isinstance(other, Ref) and isinstance(alpha, int | float):
                return self._is_product(other.id, _CUBIC / alpha if alpha else 0.0, [x, x, x])
        return False

    def _is_product(self, v: int, number: float, values: list[int]) -> bool:
        found, of = self._product(v)
        return _is(found, number) and of == values

    def _product(self, v: int, *, whole: bool = False) -> Product:
        """A value as a number times others; those that only this product needs are opened."""
        given = self._written(v, (*_MULTIPLY, *_DIVIDE, *_POWERS), shared=whole)
        if given is None:
            return 1.0, [v]
        op = self._graph.tasks[self._graph.writer[v]].op
        base, other = given["self"], given.get("other", given.get("exponent", 2))
        if op in _MULTIPLY:
            number, values = self._factor(base)
            more, others = self._factor(other)
            return number * more, values + others
        if not isinstance(base, Ref) or not isinstance(other, int | float):
            return 1.0, [v]
        number, values = self._factor(base)
        if op in _DIVIDE:
            plain = given.get("rounding_mode") is None and other != 0
            return (number / other, values) if plain else (1.0, [v])
        return (number**other, values * int(other)) if other in (2, 3) else (1.0, [v])

    def _factor(self, arg: Arg) -> Product:
        if isinstance(arg, Ref):
            return self._product(arg.id)
        return (float(arg), []) if isinstance(arg, int | float) else (math.nan, [])

    def _six(self, v: int) -> int | None:
        """x, if v is x + 3 between 0 and 6."""
        given = self._written(v, tuple(_CLAMP))
        if given is None:
            return None
        low, high = _CLAMP[self._graph.tasks[self._graph.writer[v]].op]
        inside = given["self"]
        if (given[low], given[high]) != (0, 6) or not isinstance(inside, Ref):
            return None
        return self._plus(inside.id, 3.0)

    def _plus(self, v: int, number: float) -> int | None:
        given = self._written(v, _ADD)
        if given is None or given["other"] != number or given["alpha"] != 1:
            return None
        return given["self"].id if isinstance(given["self"], Ref) else None

    def _of(self, v: int, op: str) -> int | None:
        given = self._written(v, (op,))
        return given["self"].id if given is not None and isinstance(given["self"], Ref) else None

    def _written(
        self, v: int, ops: tuple[str, ...], *, shared: bool = False
    ) -> dict[str, Arg] | None:
        """The arguments of the operator that wrote a value, if it is one of these and nobody else
        uses that."""
        writer = self._graph.writer.get(v)
        if writer is None or writer not in self._pure or (self._uses[v] != 1 and not shared):
            return None
        task = self._graph.tasks[writer]
        if task.op not in ops or self._graph[v].dtype is not DType.FLOAT32:
            return None
        return arguments(task)


_POWERS = ("aten.pow.Tensor_Scalar", "aten.square.default")
_CUBIC = 0.044715


def _is(number: float, expected: float) -> bool:
    return math.isclose(number, expected, rel_tol=1e-6)
