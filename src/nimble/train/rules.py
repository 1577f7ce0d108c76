"""What optimizers do to a parameter, as arithmetic on tensors.

The numbers in it (learning rates, decays, corrections of a bias) are not part of a plan: they are
computed for every step, in double precision as torch.optim does, and handed in. So schedulers may
change any of them at any time. Only whether a term is there at all is decided once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

Group = Mapping[str, Any]
"""One of `optimizer.param_groups`."""
Terms = tuple[Any, ...]
"""Which terms the arithmetic of a group has, and whatever else of it a plan is made for."""


class Rule(Protocol):
    """One kind of optimizer."""

    counts: bool
    """Whether its state holds the number of steps taken."""
    doubles: bool
    """Whether its numbers are wanted in double precision."""
    alike: bool
    """Whether its state is of the parameter's own type."""

    def terms(self, group: Group) -> Terms: ...

    def states(self, terms: Terms, parameter: torch.Tensor) -> tuple[str, ...]:
        """What the tensors are called that it keeps for a parameter."""

    def fresh(self, group: Group, parameter: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Those tensors, for a parameter that has taken no step."""

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """For the step of this number, counted from 1."""

    def update(
        self,
        terms: Terms,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        numbers: Sequence[torch.Tensor],
    ) -> None:
        """Change the parameter and its state in place."""


class Sgd:
    counts, doubles, alike = False, False, True

    def terms(self, group: Group) -> Terms:
        return (
            bool(group["maximize"]),
            group["weight_decay"] != 0,
            group["momentum"] != 0,
            bool(group["nesterov"]),
        )

    def states(self, terms: Terms, parameter: torch.Tensor) -> tuple[str, ...]:
        return ("momentum_buffer",) if terms[2] else ()

    def fresh(self, group: Group, parameter: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {key: _zeros(parameter) for key in self.states(self.terms(group), parameter)}

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        # The first gradient becomes the momentum as it is, without dampening.
        taken = 1.0 if step == 1 else 1 - group["dampening"]
        return float(group["lr"]), group["weight_decay"], group["momentum"], taken

    def update(
        self,
        terms: Terms,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        numbers: Sequence[torch.Tensor],
    ) -> None:
        maximize, decays, has_momentum, nesterov = terms
        rate, decay, momentum, taken = numbers
        if maximize:
            gradient = -gradient
        if decays:
            gradient = gradient + times(decay, parameter)
        if has_momentum:
            held = state["momentum_buffer"]
            new = times(momentum, held) + times(taken, gradient)
            held.copy_(new)
            gradient = gradient + times(momentum, new) if nesterov else new
        parameter.sub_(times(rate, gradient))


class Adam:
    """And AdamW, which differs in one term."""

    counts, doubles, alike = True, False, True

    def terms(self, group: Group) -> Terms:
        decays = group["weight_decay"] != 0
        decoupled = bool(group.get("decoupled_weight_decay"))
        return (
            bool(group["maximize"]),
            decays and not decoupled,
            decays and decoupled,
            bool(group["amsgrad"]),
        )

    def states(self, terms: Terms, parameter: torch.Tensor) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if terms[3] else ()))

    def fresh(self, group: Group, parameter: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {key: _zeros(parameter) for key in self.states(self.terms(group), parameter)}

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        rate, decay = float(group["lr"]), group["weight_decay"]
        first, second = map(float, group["betas"])
        return (
            rate / (1 - first**step),
            decay,
            1 - rate * decay,
            1 - first,
            second,
            1 - second,
            (1 - second**step) ** 0.5,
            group["eps"],
        )

    def update(
        self,
        terms: Terms,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        numbers: Sequence[torch.Tensor],
    ) -> None:
        maximize, decays, shrinks, amsgrad = terms
        rate, decay, shrunk, fresh, second, fresh_second, root, eps = numbers
        if maximize:
            gradient = -gradient
        if decays:
            gradient = gradient + times(decay, parameter)
        old = parameter * shrunk if shrinks else parameter
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        new_mean = mean + times(fresh, gradient - mean)
        new_square = times(second, square) + times(fresh_second, gradient * gradient)
        mean.copy_(new_mean)
        square.copy_(new_square)
        if amsgrad:
            new_square = torch.maximum(state["max_exp_avg_sq"], new_square)
            state["max_exp_avg_sq"].copy_(new_square)
        parameter.copy_(old - times(rate, new_mean) / (new_square.sqrt() / root + eps))


def times(number: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A number that comes first would be rounded to half a tensor's precision."""
    return tensor * number if tensor.dtype.itemsize == 2 else number * tensor


def _zeros(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format).detach()
