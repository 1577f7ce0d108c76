"""The plans of one model: the least recently used go first, and all follow the model's weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from nimble import _aten
from nimble.capture import Parameters, Target, shared_state
from nimble.capture.contents import Snapshot
from nimble.capture.target import what_changed
from nimble.devices import Constants, Device
from nimble.engine.churn import Churn
from nimble.errors import UnfitError
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
        self.constants = device.constants()
        self.last: Plan | None = None
        """The one used or made last."""
        self.epoch = 0
        """Another number when plans have come or gone."""
        self._plans: OrderedDict[Signature, Plan] = OrderedDict()
        self._evicted = Churn(name, most + 1)
        self._outdated = Churn(name, _PATIENCE)
        self.watch = self._places = _aten.Watch([], [])
        """Of tensors and of places that hold something; of the places only."""
        self._snapshot: Snapshot | None = None
        self._registered = 0
        """How many hooks of any kind PyTorch had counted at the last look."""
        self._hooks: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Plan]:
        """Least recently used first."""
        return iter(tuple(self._plans.values()))

    def get(self, signature: Signature) -> Plan | None:
        return self._plans.get(signature)

    def add(self, plan: Plan) -> None:
        self._plans[plan.signature] = plan
        while len(self._plans) > self.most:
            self._plans.popitem(last=False)
            self._evicted.drop(self._too_many)
        self.last = plan
        self._look_closely()

    def _too_many(self) -> str:
        return (
            f"they come in more than {self.most} kinds, and the plan used longest ago makes room "
            "for a new one. Raise max_plans=, or bring inputs to fewer shapes (padding)"
        )

    def use(self, plan: Plan) -> None:
        """Note that a plan is about to be replayed."""
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
        """Why none of the plans serves: in what the signature differs from that used last."""
        if not self._plans:
            return "the first plan"
        other = self.last or next(iter(self))
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
        return self._registered != RemovableHandle.next_id or (
            self._snapshot is not None and self._snapshot.changed()
        )

    def notice_changes(self) -> None:
        """Weights edited or replaced since the last look take effect now."""
        if (
            self._places.changed()
            or self._hooks_changed()
            or (self._snapshot is not None and self._snapshot.changed())
        ):
            self.take_over_all()
        elif self.watch.changed():
            self._bind_again(list(self), {})
            self.watch.reset()

    def _hooks_changed(self) -> bool:
        """Whether any of the hooks that were registered since the last look is one of ours."""
        if self._registered == RemovableHandle.next_id:
            return False
        self._registered = RemovableHandle.next_id
        return self.target is not None and self._hooks != self.target.hooks()

    def take_over_all(self) -> None:
        """Bind the plans that still fit to what the modules hold now, and drop the others."""
        now: dict[str, torch.Tensor] = {}
        plans = list(self)
        if self.target is not None:
            self.target = self.target.renewed()
            self.parameters = self.target.parameters()
            now, fingerprint = self.target.named_tensors(), self.target.fingerprint()
            outdated = [plan for plan in plans if plan.fingerprint != fingerprint]
            if outdated:
                self._outdated.drop(lambda: _changes(outdated[-1].fingerprint, fingerprint))
            plans = [plan for plan in plans if plan.fingerprint == fingerprint]
        self._bind_again(plans, now)
        self._look_closely()

    def _look_closely(self) -> None:
        """Watch every tensor that a plan reads, and every place in the modules that holds one."""
        self.epoch += 1
        counted: dict[int, torch.Tensor] = {}
        used: dict[int, torch.Tensor] = {}
        for plan in self:
            prologue = plan.graph.prologue
            sources = {root.name for root in prologue.roots()} if prologue is not None else set()
            read = {root.name for root in plan.graph.roots()}
            for name, tensor in plan.tensors.items():
                if name in sources:
                    counted[id(tensor)] = tensor
                if name in read or name not in sources:
                    used[id(tensor)] = tensor
        places, loose = self.target.watched() if self.target is not None else ([], [])
        contents = self.target is not None and self.target.contents
        self.watch = _aten.Watch(list(counted.values()), places, list(used.values()), contents)
        self._places = _aten.Watch([], places)
        self._snapshot = Snapshot(loose) if loose else None
        self._registered = RemovableHandle.next_id
        self._hooks = self.target.hooks() if self.target is not None else ()

    def _bind_again(self, plans: list[Plan], now: Mapping[str, torch.Tensor]) -> None:
        """Keep of these plans what fits the tensors that the modules hold now."""
        plans = [plan for plan in plans if self._take_over(plan, now)]
        self.constants.keep_only(t for plan in plans for t in plan.constants.values())
        self._plans = OrderedDict((plan.signature, plan) for plan in plans)
        if not any(plan is self.last for plan in plans):
            self.last = None

    def _take_over(self, plan: Plan, now: Mapping[str, torch.Tensor]) -> bool:
        """Bind a plan to the tensors that the modules hold now; False if it does not fit them."""
        fresh = {name: now.get(name, old) for name, old in plan.tensors.items()}
        if shared_state(plan.source, fresh) is not None:
            return False  # Captured anew it is refused, and told.
        try:
            plan.replay.rebind(fresh)
            read = {name: read() for name, read in plan.elsewhere.items()}
            self.constants.of(plan.graph, {**fresh, **read}, refresh=True)
        except UnfitError:
            return False
        plan.tensors = fresh
        return True


def _changes(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    return (
        f"the model was changed between calls ({what_changed(before, now)}). What differs from "
        "call to call is better a tensor, as an argument or as a buffer that is filled in place"
    )
