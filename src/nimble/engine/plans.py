"""The plans of one model: the least recently used go first, and all follow the model's weights."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch

from nimble.capture import Parameters, Target, shared_state
from nimble.capture.target import what_changed
from nimble.devices import Constants, Device
from nimble.engine.churn import Churn
from nimble.engine.look import Look
from nimble.engine.uncounted import concerned
from nimble.errors import RecompileWarning, UnfitError
from nimble.plan import Plan
from nimble.signature import Signature, type_text

_PATIENCE = 5
"""Of changes to a model: a few are somebody at work on it."""


class Plans:
    """Plans by signature, bound to the tensors that the model's modules hold now."""

    def __init__(self, target: Target | None, device: Device, most: int, name: str) -> None:
        self.target = target
        self.parameters = Parameters() if target is None else target.parameters()
        self.most = most
        self._name = name
        self.constants = device.constants()
        self.last: Plan | None = None
        """The one used or made last."""
        self.epoch = 0
        """Another number when plans have come or gone."""
        self._plans: OrderedDict[Signature, Plan] = OrderedDict()
        self._evicted = Churn(name, most + 1)
        self._outdated = Churn(name, _PATIENCE)
        self._look = Look(None)
        self.watch = self._look.watch
        self._uncounted = False
        """Whether a tensor was written in a way that PyTorch does not count."""
        concerned.add(self)

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Plan]:
        """Least recently used first."""
        return iter(tuple(self._plans.values()))

    def get(self, signature: Signature) -> Plan | None:
        return self._plans.get(signature)

    def add(self, plan: Plan) -> None:
        self._warn_of_numbers(plan)
        self._plans[plan.signature] = plan
        while len(self._plans) > self.most:
            gone = self._plans.popitem(last=False)[1]
            gone.why_gone = f"it made room for others (max_plans={self.most})"
            self._evicted.drop(self._too_many)
        self.last = plan
        before, look = self.watch, Look(self.target)
        look.take_in((plan, plan.tensors) for plan in self)
        self._take(look)
        if before.changed():  # while the plan was made
            self.take_over_all()

    def _warn_of_numbers(self, plan: Plan) -> None:
        alike = [p for p in self if p.signature.tensors == plan.signature.tensors]
        if len(alike) == _PATIENCE:
            warnings.warn(
                f"{self._name}: {len(alike) + 1} plans were made for tensors of the same types, "
                f"each by compiling: {self.why_none(plan.signature)}. What differs from call to "
                "call is better a tensor, torch.tensor(number)",
                RecompileWarning,
                stacklevel=2,
            )

    def _too_many(self) -> str:
        return (
            f"they come in more than {self.most} kinds, and the plan used longest ago makes room "
            "for a new one. Raise max_plans=, or bring inputs to fewer shapes (padding)"
        )

    def use(self, plan: Plan) -> None:
        """Note that a plan is about to be replayed. One that the model outgrew while it was made is
        for this call only."""
        if self.get(plan.signature) is plan:
            self.last = plan
            self._plans.move_to_end(plan.signature)

    def adopt(self, plans: Sequence[Plan], constants: Constants, parameters: Parameters) -> None:
        """Take over plans that were made elsewhere, with the constants they are bound to, and what
        their model calls its arguments."""
        self.constants = constants
        self.parameters = parameters
        for plan in plans:
            self.add(plan)

    def why_none(self, signature: Signature) -> str:
        """Why none of the plans serves: in what the signature differs from the one most like it."""
        if not self._plans:
            return "the first plan"
        plans = (self.last, *self) if self.last is not None else self
        other = min(plans, key=lambda plan: signature.distance(plan.signature))
        names = self.parameters.names_of(signature.structure, len(signature.tensors))
        return signature.difference(other.signature, names)

    def listed(self) -> str:
        """What the plans are for, in words."""
        return "; ".join(
            "(" + ", ".join(type_text(t) for t in plan.signature.tensors) + ")" for plan in self
        )

    # Weights

    def changed(self) -> bool:
        """Whether anything else than the `watch` sees may be another than at the last look."""
        return self._uncounted or self._look.unlike()

    def note_writes(self, tensors: Set[int]) -> None:
        """These, by id, were written in a way that PyTorch does not count."""
        self._uncounted = self._uncounted or not self._look.copied.isdisjoint(tensors)

    def notice_changes(self) -> None:
        """Weights edited or replaced since the last look take effect now."""
        if self._look.other_modules():
            self.take_over_all()
        elif self._uncounted or self.watch.changed():
            self._uncounted = False
            seen = self.watch.look()  # what is edited from here on is for the next time
            self._bind_again([(plan, dict(plan.tensors)) for plan in self])
            self.watch.reset(seen)

    def take_over_all(self) -> None:
        """Bind the plans that still fit to what the modules hold now, and drop the others.

        Other threads may edit the model meanwhile, and call. So the look is taken before anything
        is made of what it sees, and the last one counts until then: calls come here, and wait.
        """
        self._uncounted = False
        if self.target is not None:
            self.target = self.target.renewed()
            self.parameters = self.target.parameters()
        look = Look(self.target)
        now: dict[str, torch.Tensor] = {}
        plans = list(self)
        if self.target is not None:
            now, fingerprint = self.target.named_tensors(), self.target.fingerprint()
            outdated = [plan for plan in plans if plan.fingerprint != fingerprint]
            if outdated:
                self._outdated.drop(lambda: _changes(outdated[-1].fingerprint, fingerprint))
            for plan in outdated:
                what = what_changed(plan.fingerprint, fingerprint)
                plan.why_gone = f"the model has changed ({what})"
            plans = [plan for plan in plans if plan.fingerprint == fingerprint]
        fresh = [(p, {name: now.get(name, t) for name, t in p.tensors.items()}) for p in plans]
        look.take_in(fresh)
        self._bind_again(fresh)
        self._take(look)

    def _take(self, look: Look) -> None:
        self._look, self.watch = look, look.watch
        self.epoch += 1

    def _bind_again(self, fresh: list[tuple[Plan, dict[str, torch.Tensor]]]) -> None:
        """Keep of these plans what fits these tensors, which the modules hold now."""
        plans = [plan for plan, tensors in fresh if self._take_over(plan, tensors)]
        self.constants.keep_only(t for plan in plans for t in plan.constants.values())
        self._plans = OrderedDict((plan.signature, plan) for plan in plans)
        if not any(plan is self.last for plan in plans):
            self.last = None

    def _take_over(self, plan: Plan, tensors: dict[str, torch.Tensor]) -> bool:
        """Bind a plan to other tensors; False if it does not fit them."""
        plan.why_gone = "the model's tensors have other types, or share memory"
        if shared_state(plan.source, tensors) is not None:
            return False  # Captured anew it is refused, and told.
        try:
            plan.replay.rebind(tensors)
            read = {name: read() for name, read in plan.elsewhere.items()}
            self.constants.of(plan.graph, {**tensors, **read}, refresh=True)
        except UnfitError:
            return False
        plan.tensors, plan.why_gone = tensors, ""
        return True


def _changes(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    return (
        f"the model was changed between calls ({what_changed(before, now)}). What differs from "
        "call to call is better a tensor, as an argument or as a buffer that is filled in place"
    )
