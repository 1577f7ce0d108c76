"""A training step as a function of tensors: what is captured."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nimble.capture.target import all_names
from nimble.errors import CaptureError, InputError
from nimble.train.ledger import Slot
from nimble.train.rules import Rule
from nimble.train.tracing import as_a_plan_takes_it


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What the user decides about a step."""

    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    autocast: torch.dtype | None = None
    keep_grads: bool = False
    rng: str = "eager"

    def __post_init__(self) -> None:
        if self.rng != "eager":
            raise InputError(f"rng={self.rng!r}: expected 'eager', the order in which eager draws")
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise InputError(f"{name}={value!r}: expected a number above 0, or None")
        if self.clip_norm is not None and self.clip_value is not None:
            raise InputError("clip_norm= and clip_value= are both given; choose one")
        if type(self.accumulate) is not int or self.accumulate < 1:
            raise InputError(f"accumulate={self.accumulate!r}: expected a number from 1 up")
        if self.autocast not in (None, torch.bfloat16, torch.float16):
            raise InputError(
                f"autocast={self.autocast!r}: expected torch.bfloat16, torch.float16 or None"
            )


class Program:
    """Forward, loss, backward, clipping and update. Called on tensors of a trace: the modules hold
    such in place of their own."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        loss_fn: Any,
        rule: Rule,
        slots: tuple[Slot, ...],
        options: StepOptions,
        place: torch.device,
        *,
        updates: bool,
        summed: tuple[bool, ...] = (),
        flushes: bool = False,
    ) -> None:
        self._modules = modules
        self._loss_fn = loss_fn
        self._rule = rule
        self._slots = slots
        self._options = options
        self._place = place
        self._updates = updates
        """False: the gradients are only added up."""
        self._summed = summed or (False,) * len(slots)
        """Which parameters have gradients from earlier calls of the same update."""
        self._flushes = flushes
        """There is no batch: the update is with the gradients of earlier calls."""
        self.reached = (False,) * len(slots)
        """Which have one at all in the call that was captured last."""
        self._ever = list(self.reached)
        """Which have one in any that was captured."""

    def __call__(
        self, numbers: torch.Tensor, /, *args: Any, **kwargs: Any
    ) -> tuple[Any, tuple[bool, ...]]:
        """What the step returns, and which parameters were reached."""
        tensors = {
            f"{prefix}:{name}": tensor
            for prefix, module in reversed(list(self._modules.items()))
            for name, tensor in all_names(module)
        }
        parameters = [tensors[slot.name] for slot in self._slots]
        result: Any = None
        gradients: list[torch.Tensor | None] = [None] * len(parameters)
        if not self._flushes:
            result, gradients = self._gradients(parameters, args, kwargs)
        with torch.no_grad():
            self.reached = self._use(parameters, gradients, tensors, numbers)
            self._ever = [a or b for a, b in zip(self._ever, self.reached, strict=True)]
        return result, self.reached

    def _gradients(
        self, parameters: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[torch.Tensor | None]]:
        """What the step returns, and the gradients of those parameters that the loss depends on."""
        cast = self._options.autocast
        with torch.enable_grad(), as_a_plan_takes_it():
            with (
                torch.autocast(self._place.type, dtype=cast, enabled=cast is not None),
                self._attention(),
            ):
                loss, result = self._loss(args, kwargs)
            gradients = torch.autograd.grad(
                loss / self._options.accumulate if self._options.accumulate > 1 else loss,
                parameters,
                allow_unused=True,
            )
        return result, list(gradients)

    def follow(self, slots: tuple[Slot, ...]) -> bool:
        """Whether all that was captured holds for these slots as well: they differ in parameters
        that no capture has reached. If so, they are those of the next."""
        if len(slots) != len(self._slots):
            return False
        for mine, other, reached in zip(self._slots, slots, self._ever, strict=True):
            if mine != other and (reached or mine.path != other.path):
                return False
        self._slots = slots
        return True

    def _attention(self) -> AbstractContextManager[None]:
        """On a GPU as products and a softmax: the fused kernels hand the seed of their dropout to
        the backward on the host, where no captured graph could find the next one."""
        if self._place.type == "cpu":
            return nullcontext()
        kernels: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
        return kernels

    def _loss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, Any]:
        """The loss, and what the step returns."""
        model = self._modules[""]
        if self._loss_fn is None:
            made = model(*args, **kwargs)
        else:
            if not args:
                raise InputError(
                    "loss_fn is called with what the model gives and the last of the step's "
                    "arguments; there is none"
                )
            if len(args) == 1 and not kwargs and _wants_arguments(model):
                raise InputError(
                    "loss_fn is called with the last of the step's arguments, and there is one: "
                    "nothing is left for the model. Call step(inputs, target); of a batch that is "
                    "a dict, step(target, **inputs) with the target taken out, or with "
                    "loss_fn=None step(**batch) where the model computes its loss"
                )
            made = self._loss_fn(model(*args[:-1], **kwargs), args[-1])
        loss = _loss_in(made)
        if loss.numel() != 1 or not loss.is_floating_point():
            raise CaptureError(
                f"the loss is {loss.dtype} of shape {tuple(loss.shape)}; expected one number "
                "(loss.mean(), say)"
            )
        if not loss.requires_grad:
            raise CaptureError(
                "the loss depends on no parameter that requires a gradient; was it computed under "
                "torch.no_grad(), or is all of the model frozen?"
            )
        if type(made) in (tuple, list):
            return loss.reshape(()), type(made)(map(_detached, made))
        if type(made) is dict and self._loss_fn is not None:
            return loss.reshape(()), {key: _detached(value) for key, value in made.items()}
        return loss.reshape(()), loss.detach()

    def _use(
        self,
        parameters: Sequence[torch.Tensor],
        gradients: list[torch.Tensor | None],
        tensors: dict[str, torch.Tensor],
        numbers: torch.Tensor,
    ) -> tuple[bool, ...]:
        """Which parameters have a gradient."""
        options = self._options
        if options.accumulate > 1:
            sums = [tensors[f"sums:{slot.path}"] for slot in self._slots]
            for place, (held, gradient) in enumerate(zip(sums, gradients, strict=True)):
                if gradient is None and not (self._updates and self._summed[place]):
                    continue
                gradients[place] = total = held.clone() if gradient is None else held + gradient
                held.copy_(torch.zeros_like(held) if self._updates else total)
        reached = tuple(gradient is not None for gradient in gradients)
        if not self._updates:
            return reached
        gradients = self._clipped(gradients)
        for place, gradient in enumerate(gradients):
            if gradient is None:
                continue  # No part of the loss: eager leaves it alone as well.
            slot = self._slots[place]
            state = {key: tensors[f"optimizer:{called}"] for key, called in slot.states}
            row = numbers[slot.row].unbind()
            self._rule.update(slot.terms, parameters[place], gradient, state, row)
            if options.keep_grads:
                tensors[f"grads:{slot.path}"].copy_(gradient)
        return reached

    def _clipped(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """As torch.nn.utils.clip_grad_norm_ and clip_grad_value_ do."""
        there = [g for g in gradients if g is not None]
        if self._options.clip_value is not None:
            most = self._options.clip_value
            return [None if g is None else g.clamp(-most, most) for g in gradients]
        if self._options.clip_norm is None or not there:
            return gradients
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in there]))
        share = (self._options.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        return [None if g is None else g * share for g in gradients]


def _loss_in(made: Any) -> torch.Tensor:
    """The loss in what a model or a loss function gave."""
    found = made
    if isinstance(made, tuple | list) and type(made) in (tuple, list):
        found = made[0] if made else None
    elif not isinstance(made, torch.Tensor):
        found = made.get("loss") if isinstance(made, dict) else getattr(made, "loss", None)
    if isinstance(made, float | torch.SymFloat):
        raise CaptureError(
            "the loss is a number of Python's; return the tensor, without .item() or float()"
        )
    if not isinstance(found, torch.Tensor):
        raise CaptureError(
            f"no loss in the {type(made).__name__} that the model or loss_fn gave; expected a "
            "tensor, a tuple that begins with one, or something with a `loss`"
        )
    return found


def _wants_arguments(model: nn.Module) -> bool:
    parameters = inspect.signature(model.forward).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def _detached(thing: Any) -> Any:
    return thing.detach() if isinstance(thing, torch.Tensor) else thing
