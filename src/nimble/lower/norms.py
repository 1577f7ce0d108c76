"""RMS and layer norms that a model spells out in pointwise operators and means."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.graph import Arg, DType, Edit, Graph, Ref, Task
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.rewrite import remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks, written_by


def recognise_norms(graph: Graph, supported: Supported) -> Graph:
    """x * rsqrt(mean(x²) + eps), over the last dimension, becomes one task; with x = z - mean(z) it
    is the layer norm of z."""
    edit = Edit(graph)
    pattern = _Pattern(graph, pure_tasks(graph))
    found = False
    for t, task in enumerate(graph.tasks):
        norm = pattern.norm(t)
        if norm is not None and supported(graph, norm):
            found = True
            edit.tasks.append(norm)
        else:
            edit.tasks.append(task)
    return remove_dead_tasks(edit.done()) if found else graph


@dataclass(frozen=True)
class _Pattern:
    graph: Graph
    pure: frozenset[int]

    def norm(self, t: int) -> Task | None:
        task = self.graph.tasks[t]
        if t not in self.pure or task.op not in ("aten.mul.Tensor", "aten.div.Tensor"):
            return None
        given = arguments(task)
        a, b = given["self"], given["other"]
        divides = task.op == "aten.div.Tensor"
        for x, factor in ((a, b),) if divides else ((a, b), (b, a)):
            eps = self._eps(factor, x, "sqrt" if divides else "rsqrt")
            if eps is None or not isinstance(x, Ref):
                continue
            whole = self._centred(x)
            op = "nimble.rms_norm" if whole is None else "nimble.layer_norm"
            source = whole or x
            value = self.graph[source.id]
            if value.dtype is not DType.FLOAT32 or value.strides[-1:] != (1,):
                return None
            args = (source, None, None)
            return call(task.name, op, args, task.results, (("eps", eps),), task.origin)
        return None

    def _eps(self, factor: Arg, x: Arg, root: str) -> float | None:
        """eps, if the factor is the root of the mean square of x plus eps."""
        inside = self._written(factor, f"aten.{root}.default")
        if not inside or not isinstance(x, Ref):
            return None
        added = self._written(inside["self"], "aten.add.Tensor") or self._written(
            inside["self"], "aten.add.Scalar"
        )
        if not added:
            return None
        square, eps = added["self"], added["other"]
        if not isinstance(eps, int | float) or added["alpha"] != 1:
            return None
        of = self._mean(square)
        if of is None:
            return None
        power = self._written(of, "aten.pow.Tensor_Scalar")
        product = self._written(of, "aten.mul.Tensor")
        if power and power["self"] == x and power["exponent"] == 2:
            return float(eps)
        return float(eps) if product and product["self"] == x == product["other"] else None

    def _centred(self, x: Ref) -> Ref | None:
        """z, if x is z less its mean."""
        less = self._written(x, "aten.sub.Tensor")
        if not less or less["alpha"] != 1 or not isinstance(less["self"], Ref):
            return None
        return less["self"] if self._mean(less["other"]) == less["self"] else None

    def _mean(self, arg: Arg) -> Arg:
        """What it is the mean of, over the last dimension, which is kept; or None."""
        mean = self._written(arg, "aten.mean.dim")
        if not mean or not mean["keepdim"] or mean["dtype"] is not None:
            return None
        x = mean["self"]
        assert isinstance(x, Ref)
        last = len(self.graph[x.id].shape) - 1
        return x if mean["dim"] in ((-1,), (last,)) else None

    def _written(self, arg: Arg, op: str) -> dict[str, Arg] | None:
        return written_by(self.graph, self.pure, arg, op)
