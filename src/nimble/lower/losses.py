"""The cross entropy of rows of logits, which PyTorch spells out: logarithms of a softmax, picked by
the targets; and its gradient, made from the logits again, so that no logarithm is kept for it."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.rewrite import remove_dead_tasks
from nimble.rewrite.operators import arguments, pure_tasks, written_by

_MEAN, _SUM = 1, 2
"""How PyTorch numbers reductions."""


def recognise_losses(graph: Graph, supported: Supported) -> Graph:
    losses = _Losses(graph, supported)
    for t, task in enumerate(graph.tasks):
        made = losses.forward(t) or losses.backward(t)
        losses.edit.tasks += made or [task]
    return remove_dead_tasks(losses.edit.done()) if losses.known else graph


@dataclass(frozen=True, slots=True)
class _Loss:
    logits: Ref
    target: Ref
    shifts: Ref
    """Of each row its largest logit, and the logarithm of the sum of what is left."""
    mean: bool
    ignored: int


class _Losses:
    def __init__(self, graph: Graph, supported: Supported) -> None:
        self.edit = Edit(graph)
        self.known: dict[int, _Loss] = {}
        """By the logarithms that they were computed from."""
        self._graph = graph
        self._supported = supported
        self._pure = pure_tasks(graph)

    def forward(self, t: int) -> list[Task] | None:
        task, given = self._graph.tasks[t], self._given(t, "aten.nll_loss_forward.default")
        picked = given and self._written(given["self"], "aten._log_softmax.default")
        if not given or not picked or given["weight"] is not None:
            return None
        logits, target, ignored = picked["self"], given["target"], given["ignore_index"]
        if not isinstance(logits, Ref) or not isinstance(target, Ref):
            return None
        if any(self._is_overwritten(v) for v in (logits.id, target.id)):
            return None  # The way back reads them again.
        value = self._graph[logits.id]
        if len(value.shape) != 2 or picked["dim"] not in (1, -1) or picked["half_to_float"]:
            return None
        if given["reduction"] not in (_MEAN, _SUM) or not isinstance(ignored, int):
            return None
        rows = value.shape[0]
        losses = self._room(f"{task.name}.rows", (rows,))
        shifts = self._room(f"{task.name}.shifts", (rows, 2))
        results = tuple(
            self._room(f"{task.name}.{i}", ()) if v is None else v
            for i, v in enumerate(task.results)
        )
        mean = given["reduction"] == _MEAN
        skipped = ("ignored", ignored)
        made = [
            call(
                f"{task.name}.rows", "nimble.cross_entropy", (logits, target), (losses, shifts),
                (skipped,), task.origin,
            ),
            call(
                task.name, "nimble.total_loss", (Ref(losses), target), results,
                (skipped, ("mean", mean)), task.origin,
            ),
        ]  # fmt: skip
        if not all(self._supported(self.edit.values, one) for one in made):
            return None
        assert isinstance(given["self"], Ref)
        self.known[given["self"].id] = _Loss(logits, target, Ref(shifts), mean, ignored)
        return made

    def backward(self, t: int) -> list[Task] | None:
        """g - exp(logarithms) * sum(g), where g is the gradient of picking."""
        task, less = self._graph.tasks[t], self._given(t, "aten.sub.Tensor")
        picking = less and self._written(less["self"], "aten.nll_loss_backward.default")
        product = less and self._written(less["other"], "aten.mul.Tensor")
        if not less or not picking or not product or less["alpha"] != 1:
            return None
        logarithms = picking["self"]
        loss = self.known.get(logarithms.id) if isinstance(logarithms, Ref) else None
        if loss is None or not any(
            self._is_exp(a, logarithms) and self._is_sum(b, less["self"])
            for a, b in (
                (product["self"], product["other"]),
                (product["other"], product["self"]),
            )
        ):
            return None
        same = (loss.target, loss.ignored, _MEAN if loss.mean else _SUM, None)
        if same != tuple(picking[k] for k in ("target", "ignore_index", "reduction", "weight")):
            return None
        args = (
            loss.logits, loss.target, loss.shifts, picking["grad_output"], picking["total_weight"],
        )  # fmt: skip
        made = call(
            task.name, "nimble.cross_entropy_gradient", args, task.results,
            (("ignored", loss.ignored), ("mean", loss.mean)), task.origin,
        )  # fmt: skip
        return [made] if self._supported(self.edit.values, made) else None

    def _is_exp(self, arg: Arg, of: Arg) -> bool:
        given = self._written(arg, "aten.exp.default")
        return given is not None and given["self"] == of

    def _is_sum(self, arg: Arg, of: Arg) -> bool:
        given = self._written(arg, "aten.sum.dim_IntList")
        return (
            given is not None
            and given["self"] == of
            and given["dim"] in ((1,), (-1,))
            and given["keepdim"] is True
            and given["dtype"] is None
        )

    def _is_overwritten(self, v: int) -> bool:
        home = self._graph.homes[v]
        return self._graph.final(home) != home

    def _room(self, name: str, shape: tuple[int, ...]) -> int:
        return self.edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, shape)

    def _written(self, arg: Arg, op: str) -> dict[str, Arg] | None:
        return written_by(self._graph, self._pure, arg, op)

    def _given(self, t: int, op: str) -> dict[str, Arg] | None:
        task = self._graph.tasks[t]
        return arguments(task) if task.op == op and t in self._pure else None
