"""The optimizer's state, kept where the user sees it and a plan can write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nimble import _aten
from nimble.capture.contents import Place, entries
from nimble.capture.target import all_names
from nimble.errors import InputError
from nimble.train.optimizers import rule_of
from nimble.train.rules import Rule, Terms


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter that is updated."""

    name: str
    """The prefix of its module, a colon, and its name there."""
    row: int
    """Which row of numbers it is updated with."""
    terms: Terms
    states: tuple[tuple[str, str], ...]
    """What the optimizer calls a tensor of its state → what the ledger calls it."""

    @property
    def path(self) -> str:
        """The name without dots, as a buffer may be called."""
        return self.name.replace(".", "/")


class Ledger:
    """Which parameters an optimizer updates, with which numbers, and the tensors of its state.

    `held` is a module whose buffers are those very tensors: an engine follows it as any other.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        place: torch.device,
    ) -> None:
        self._place = place
        self._modules = modules
        self._optimizer = optimizer
        self.rule: Rule = rule_of(optimizer)
        self.held = nn.Module()
        self.slots: tuple[Slot, ...] = ()
        self._watch = _aten.Watch([], [])
        self._seen: tuple[Any, ...] = ()
        self._rows: list[tuple[int, int]] = []
        """The group of each row, and how many steps its parameters have taken."""
        self._members: list[list[int]] = []
        """Their places, by row."""
        self._counts = torch.zeros(0)
        self._counted = 0
        self.parameters: list[torch.Tensor] = []
        self.frozen: list[torch.Tensor] = []
        """Those of the optimizer's that need no gradient now."""
        self._unseen: list[tuple[int, str, torch.Tensor]] = []
        """State that is made, and becomes the optimizer's with the next step: the parameter's
        place, and what it is called."""
        self._dtype = torch.float32
        self._look()

    def notice_changes(self) -> None:
        """Follow an optimizer whose state was loaded, or whose groups were changed."""
        if self._watch.changed() or self._seen != self._shape():
            self._look()

    def numbers(self) -> torch.Tensor:
        """What the next step is computed with; a row for all parameters of a group that have taken
        as many steps. There is room for two of each group: where some fall behind, a plan that
        does not reach them stays what it is."""
        groups = self._optimizer.param_groups
        rows = [self.rule.numbers(groups[group], taken + 1) for group, taken in self._rows]
        rows += rows[:1] * (2 * len(groups) - len(rows))
        return torch.tensor(rows, dtype=self._dtype, device=self._place)

    def advance(self, reached: Sequence[bool]) -> None:
        """A step was taken that updated the parameters reached: what was made for them becomes the
        optimizer's state. Those that were not reached have taken no step."""
        apart = False
        if all(reached):
            self._rows = [(group, taken + 1) for group, taken in self._rows]
            self._counts.add_(1)
        else:
            self._counts.add_(torch.tensor(reached))
            moved = [{reached[place] for place in places} for places in self._members]
            apart = any(len(kinds) > 1 for kinds in moved)
            self._rows = [
                (group, taken + (True in kinds))
                for (group, taken), kinds in zip(self._rows, moved, strict=True)
            ]
        self._counted = self._counts._version
        # Schedulers ask the optimizer whether it has taken a step.
        self._optimizer._opt_called = True  # type: ignore[attr-defined]
        if self._unseen:
            for place, key, held in self._unseen:
                if reached[place]:
                    self._optimizer.state[self.parameters[place]][key] = held
            self._unseen = [unseen for unseen in self._unseen if not reached[unseen[0]]]
            self._note()
        if apart:
            self._look()

    def _shape(self) -> tuple[Any, ...]:
        groups = self._optimizer.param_groups
        return (
            self._counts._version - self._counted,
            *map(id, self._optimizer.state.values()),
            *((id(group), len(group["params"]), self.rule.terms(group)) for group in groups),
            *(
                (id(p), p.requires_grad, p.dtype, p.shape)
                for group in groups
                for p in group["params"]
            ),
        )

    def _look(self) -> None:
        names = {
            id(tensor): f"{prefix}:{name}"
            for prefix, module in reversed(list(self._modules.items()))
            for name, tensor in all_names(module)
        }
        found: list[tuple[torch.Tensor, str, int]] = []
        frozen: list[torch.Tensor] = []
        seen: set[int] = set()
        for number, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise InputError(
                        f"group {number} of the optimizer holds a tensor of shape "
                        f"{tuple(parameter.shape)} that is no parameter of the model or of the "
                        "loss; make an optimizer for the parameters that they have now"
                    )
                if parameter.is_complex():
                    name = names[id(parameter)].strip(":")
                    raise InputError(f"{name!r} is complex, and a step updates real parameters")
                if id(parameter) in seen:
                    raise InputError(
                        f"{names[id(parameter)]!r} is in the optimizer's groups more than once; "
                        "make an optimizer that updates it once"
                    )
                seen.add(id(parameter))
                if parameter.requires_grad:
                    found.append((parameter, names[id(parameter)], number))
                else:
                    frozen.append(parameter)
        self.frozen = frozen
        self.parameters = [parameter for parameter, _, _ in found]
        self._take(found)
        self._note()

    def _note(self) -> None:
        """Remember how everything is now."""
        places: list[Place] = [(vars(self._optimizer), "state", self._optimizer.state)]
        for module in (m for root in self._modules.values() for m in root.modules()):
            places += entries(module._parameters)
        for parameter in self.parameters:
            places += entries(self._optimizer.state.get(parameter, {}))
        self._watch = _aten.Watch([], places)
        self._counted = self._counts._version
        self._seen = self._shape()

    def _take(self, found: list[tuple[torch.Tensor, str, int]]) -> None:
        """Take over the state of these parameters, and make what is missing."""
        groups, state = self._optimizer.param_groups, self._optimizer.state
        slots: list[Slot] = []
        self._unseen = []
        buffers: dict[str, torch.Tensor] = {}
        taken = [self._taken(state.get(parameter, {})) for parameter, _, _ in found]
        double = torch.get_default_dtype() is torch.float64  # as torch.optim counts, too
        self._counts = torch.tensor(taken, dtype=torch.float64 if double else torch.float32)
        rows = _rows([(number, taken[place]) for place, (_, _, number) in enumerate(found)])
        self._members = [[] for _ in rows]
        for place, (parameter, name, number) in enumerate(found):
            terms = self.rule.terms(groups[number])
            mine = state.get(parameter, {})
            if self.rule.counts:
                self._unseen.append((place, "step", self._counts[place]))
            states = []
            keys = self.rule.states(terms, parameter)
            missing = [key for key in keys if mine.get(key) is None]
            fresh = self.rule.fresh(groups[number], parameter) if missing else {}
            self._unseen += [(place, key, fresh[key]) for key in missing]
            for key in keys:
                called = f"{name.partition(':')[2].replace('.', '/')} {key} {place}"
                held = fresh[key] if key in missing else mine[key]
                _check_state(name, key, held, parameter, self.rule.alike)
                buffers[called] = held
                states.append((key, called))
            row = rows[number, taken[place]]
            self._members[row].append(place)
            slots.append(Slot(name, row, terms, tuple(states)))
        self.held._buffers.clear()
        self.held._buffers.update(buffers)
        self._rows, self.slots = list(rows), tuple(slots)
        doubles = any(parameter.dtype == torch.float64 for parameter in self.parameters)
        self._dtype = torch.float64 if doubles or self.rule.doubles else torch.float32

    def _taken(self, state: Mapping[str, Any]) -> int:
        """Steps that a parameter with this state has taken; where they are not counted, whether it
        has taken any."""
        if self.rule.counts:
            return int(state.get("step", 0))
        return int(any(value is not None for value in state.values()))


def _rows(kinds: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """A row for each group and number of steps taken. The parameters of a group that have taken
    most come first: they keep their row where others fall behind."""
    behind = {
        kind: sum(other[0] == kind[0] and other[1] > kind[1] for other in set(kinds))
        for kind in set(kinds)
    }
    return {kind: row for row, kind in enumerate(sorted(behind, key=lambda k: (behind[k], k)))}


def _check_state(
    name: str, key: str, held: torch.Tensor, parameter: torch.Tensor, alike: bool
) -> None:
    """Some optimizers keep one number for a row or a column: dimensions of 1 are right."""
    if alike and held.dtype != parameter.dtype:
        raise InputError(
            f"{name.partition(':')[2]!r} is {parameter.dtype}, and {key!r} of the optimizer's "
            f"state for it {held.dtype}; after a model was converted make a new optimizer, or "
            "delete its state (optimizer.state.clear())"
        )
    sizes = zip(held.shape, parameter.shape, strict=False)
    if held.dim() == parameter.dim() and any(mine not in (1, size) for mine, size in sizes):
        raise InputError(
            f"{name.partition(':')[2]!r} is of shape {tuple(parameter.shape)}, and {key!r} of the "
            f"optimizer's state for it of {tuple(held.shape)}; after a parameter was resized make "
            "a new optimizer, or delete its state (del optimizer.state[parameter])"
        )
