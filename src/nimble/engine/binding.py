"""Buffers that stay: a plan bound to a caller's tensors, and to results written again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nimble.capture.structure import unflatten
from nimble.devices import Bound
from nimble.engine.plans import Plans
from nimble.errors import InputError
from nimble.plan import Plan


@dataclass
class Binding:
    plan: Plan
    bound: Bound
    results: Any
    """Nested as the model's."""
    handed: dict[str, torch.Tensor]
    """The model's own tensors among the results, by name."""
    epoch: int
    """The `Plans.epoch` in which the plan was seen last."""

    @staticmethod
    def of(plan: Plan, bound: Bound, held: Plans) -> Binding:
        graph = plan.graph
        homes = {graph[graph.homes[id]].name for id in graph.outputs}
        handed = {name: tensor for name, tensor in plan.tensors.items() if name in homes}
        return Binding(plan, bound, unflatten(plan.output, bound.outputs), handed, held.epoch)

    def still_fits(self, held: Plans, training: tuple[bool, ...]) -> None:
        """Follow edited weights; InputError where the model is no longer the one bound."""
        held.notice_changes()
        signature = self.plan.signature
        if held.get(signature) is not self.plan:
            why = self.plan.why_gone or "another was made in its place"
            raise InputError(f"the plan that was bound is gone, since {why}: bind again")
        if signature.training != training:
            raise InputError("train() or eval() was called since bind(): bind again")
        if any(self.plan.tensors[n] is not t for n, t in self.handed.items()):
            raise InputError("a parameter that is a result was replaced since bind(): bind again")
        self.epoch = held.epoch
