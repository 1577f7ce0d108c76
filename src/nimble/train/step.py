"""A training step that the user calls in their own loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nimble.capture import capture
from nimble.capture.reach import Reached
from nimble.capture.structure import flatten
from nimble.capture.target import Target
from nimble.devices import Device
from nimble.engine import Engine
from nimble.engine.arguments import checked
from nimble.engine.churn import Churn
from nimble.errors import InputError
from nimble.graph import Graph
from nimble.settings import Settings
from nimble.train.arithmetic import arithmetic
from nimble.train.hooks import Hooks
from nimble.train.ledger import Ledger, Slot
from nimble.train.program import Program, StepOptions

_MOST_KINDS = 32
"""Of engines that a step holds: enough for layers that are thawed one after the other."""
_PATIENCE = 3


@dataclass(frozen=True)
class _StepTarget(Target):
    """A program, and the modules whose tensors it reads and updates."""

    loss_fn: Any = None
    opened: bool = True
    """Whether gradients are traced as the arithmetic that they are made of."""

    @property
    def contents(self) -> bool:
        """Targets and averages of weights are often updated through `.data` between steps."""
        return True

    @property
    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        return arithmetic() if self.opened else {}

    def renewed(self) -> Target:
        """With what the loss function reaches now."""
        return replace(self, reached=None if self.reached is None else Reached(self.loss_fn))


@dataclass(frozen=True)
class _Kind:
    """What an engine is for."""

    slots: tuple[Slot, ...]
    last: bool
    """It updates; else it only adds up gradients."""
    summed: tuple[bool, ...] = ()
    """Which parameters have gradients of the calls before."""
    flushes: bool = False
    """It updates with these alone."""


@dataclass(frozen=True, slots=True)
class _Made:
    engine: Engine
    program: Program
    """That it captures."""


class Step:
    """Forward, loss, backward, clipping and update, replayed from one plan. Made by
    `nimble.compile_step`.

    Parameters, buffers and the optimizer's state are updated where they lie, so the model and the
    optimizer may be used, saved, loaded and changed between steps. A batch of another shape gets a
    plan of its own. Afterwards `p.grad` is None; with `keep_grads`, the gradient that the
    parameter was updated with.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Any,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        device: Device,
        options: StepOptions,
        name: str,
        max_plans: int = 16,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model is a {type(model).__name__}; expected an nn.Module")
        if "_orig_mod" in model._modules:  # To ask for its class would import Dynamo.
            raise InputError(
                "the model was made by torch.compile already; pass the one that it was made from "
                "(model._orig_mod)"
            )
        Target.of(model)  # Refuses what cannot be captured at all.
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(
                f"optimizer is a {type(optimizer).__name__}; expected one of torch.optim, which "
                "may have several groups of parameters"
            )
        if loss_fn is not None and not callable(loss_fn):
            raise InputError(f"loss_fn is a {type(loss_fn).__name__}; expected a function or None")
        self.name = name
        self.settings = settings
        self.device = device
        self._loss_fn = loss_fn
        self._options = options
        self._most = max_plans
        plain = loss_fn is None or isinstance(loss_fn, nn.Module)
        self._reached = None if plain else Reached(loss_fn)
        self._modules = {"": model}
        if isinstance(loss_fn, nn.Module):
            self._modules["loss function"] = loss_fn  # which no attribute is called
        elif self._reached is not None:
            found = self._reached.modules.items()
            self._modules |= {f"loss {name}".strip(): module for name, module in found}
        _refuse_sparse(self._modules)
        _refuse_distributed(model)
        self._ledger = Ledger(self._modules, optimizer, device.place)
        self._hooks = Hooks(self._modules, optimizer)
        self._sums, self._grads = nn.Module(), nn.Module()
        self._room_for: tuple[Slot, ...] = ()
        """The parameters for which these have room."""
        self._made: dict[_Kind, _Made] = {}
        self._dropped = Churn(name, _PATIENCE)
        self._turn = 0
        """Of the calls that one update takes."""
        self._summed: frozenset[str] = frozenset()
        """Parameters that the calls before this one reached, of those for the same update."""
        self._lock = threading.RLock()  # Hooks may call the step's own methods.
        self._notice_changes()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Take a step on a batch, and return the loss."""
        if torch.is_inference_mode_enabled():
            raise InputError("a step under torch.inference_mode(), where nothing can be trained")
        if torch.is_autocast_enabled(self.device.place.type):
            raise InputError(
                "a step inside of torch.autocast, which is decided when it is compiled: pass "
                "autocast=torch.bfloat16 to compile_step, and call the step outside"
            )
        with self._lock:
            self._notice_changes()
            last = self._turn == self._options.accumulate - 1
            engine = self._making(self._kind(last, self._summed)).engine
            try:
                result, reached = engine(self._ledger.numbers(), *args, **kwargs)
            except InputError:
                _refuse_grad((args, kwargs))
                raise
            if not last:
                self._turn += 1
                self._summed |= _paths(self._ledger.slots, reached)
                return result
            self._updated_with(reached)
            return result

    def flush(self) -> None:
        """With `accumulate`, update with the gradients that were added up since the last update,
        if there are any: their sum divided by `accumulate`, as if the missing ones were 0."""
        with self._lock:
            self._notice_changes()
            if self._turn:
                kind = replace(self._kind(True, self._summed), flushes=True)
                _, reached = self._making(kind).engine(self._ledger.numbers())
                self._updated_with(reached)

    def zero_grad(self) -> None:
        """With `accumulate`, forget the gradients that were added up since the last update: the
        next call is the first for another."""
        with self._lock:
            for held in self._sums._buffers.values():
                assert held is not None
                held.zero_()
            self._turn, self._summed = 0, frozenset()

    def __reduce__(self) -> Any:
        raise InputError(
            "a step is made for the tensors of this process and cannot be copied or pickled; copy "
            "or save the model and the optimizer, and compile a step for them"
        )

    def prepare(self, /, *args: Any, **kwargs: Any) -> None:
        """Make the plan for a batch like this, the smaller one at the end of an epoch say, before
        it comes. Nothing is trained."""
        with self._lock:
            self._notice_changes()
            self.compile(args, kwargs)

    def compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        report: Callable[[str, str], None] = lambda plan, stage: None,
    ) -> None:
        """Make the plans for a batch like this, and report on it."""
        summed: frozenset[str] = frozenset()
        for last in (False, True) if self._options.accumulate > 1 else (True,):
            kind = self._kind(last, summed)
            made = self._making(kind)
            made.engine.compile((self._ledger.numbers(), *args), kwargs, None, report)
            summed = _paths(kind.slots, made.program.reached)

    def explain(self, *, tasks: bool = False) -> str:
        return "\n\n".join(engine.explain(tasks=tasks) for engine in self.engines)

    @property
    def engines(self) -> tuple[Engine, ...]:
        """One that updates, and with `accumulate` one that only adds up gradients."""
        return tuple(made.engine for made in self._made.values())

    def graph(self, /, *args: Any, **kwargs: Any) -> Graph:
        """The step that updates, captured for a batch like this in the operators that eager calls,
        and nothing decided yet."""
        with self._lock:
            self._notice_changes()
            program = self._program(self._kind(True, self._summed))
            target = replace(self._target(program), opened=False)
            tensors, structure, _ = checked(
                (self._ledger.numbers(), *args), kwargs, target.parameters(), self.device.place
            )
            return capture(target, tensors, structure, self.name).graph

    def _notice_changes(self) -> None:
        """Of what is updated, with which terms, and who wants to see it."""
        self._hooks.check()
        self._ledger.notice_changes()
        if self._ledger.slots is not self._room_for:
            self._make_buffers()
            self._room_for = self._ledger.slots

    def _kind(self, last: bool, summed: frozenset[str]) -> _Kind:
        slots = self._ledger.slots
        adds_up = last and self._options.accumulate > 1
        return _Kind(slots, last, tuple(slot.path in summed for slot in slots) if adds_up else ())

    def _making(self, kind: _Kind) -> _Made:
        made = self._made.get(kind)
        if made is None:
            name = self.name if kind.last else f"{self.name}, adding up"
            program = self._program(kind)
            target = self._target(program)
            engine = Engine(target, name, self.settings, self.device, max_plans=self._most)
            made = self._made[kind] = _Made(engine, program)
            if len(self._made) > _MOST_KINDS:
                del self._made[next(iter(self._made))]
                self._dropped.drop(_why_dropped)
        return made

    def _all_modules(self) -> dict[str, nn.Module]:
        return {
            **self._modules,
            "optimizer": self._ledger.held,
            "sums": self._sums,
            "grads": self._grads,
        }

    def _program(self, kind: _Kind) -> Program:
        return Program(
            self._all_modules(),
            self._loss_fn,
            self._ledger.rule,
            kind.slots,
            self._options,
            self.device.place,
            updates=kind.last,
            summed=kind.summed,
            flushes=kind.flushes,
        )

    def _target(self, program: Program) -> _StepTarget:
        modules, opened = self._all_modules(), self.device.fuses
        return _StepTarget(program, modules, self._reached, self._loss_fn, opened)

    def _updated_with(self, reached: tuple[bool, ...]) -> None:
        """An update was made, of the parameters reached."""
        self._turn, self._summed = 0, frozenset()
        self._show_gradients(reached)
        self._advance(reached)
        self._hooks.call()

    def _advance(self, reached: tuple[bool, ...]) -> None:
        """A step was taken. Parameters that it did not reach have taken fewer from now on; where
        the plans depend on the others only, they stay."""
        before = self._ledger.slots
        self._ledger.advance(reached)
        after = self._ledger.slots
        if after is before:
            return
        self._make_buffers()
        self._room_for = after
        for kind in [kind for kind in self._made if kind.slots == before]:
            if self._made[kind].program.follow(after):
                self._made[replace(kind, slots=after)] = self._made.pop(kind)

    def _show_gradients(self, reached: tuple[bool, ...]) -> None:
        held = self._grads._buffers
        for place, (slot, parameter) in enumerate(self._updated()):
            parameter.grad = held.get(slot.path) if reached[place] else None
        for parameter in self._ledger.frozen:
            parameter.grad = None

    def _make_buffers(self) -> None:
        """Room for gradients that outlive a call. What has been summed up stays."""
        for module, wanted in (
            (self._sums, self._options.accumulate > 1),
            (self._grads, self._options.keep_grads),
        ):
            before = dict(module._buffers)
            module._buffers.clear()
            for slot, parameter in self._updated() if wanted else ():
                held = before.get(slot.path)
                if held is None or held.shape != parameter.shape or held.dtype != parameter.dtype:
                    held = torch.zeros_like(parameter).detach()
                module._buffers[slot.path] = held

    def _updated(self) -> Iterable[tuple[Slot, torch.Tensor]]:
        return zip(self._ledger.slots, self._ledger.parameters, strict=True)


def _refuse_grad(given: Any) -> None:
    if any(tensor.requires_grad for tensor in flatten(given)[0]):
        raise InputError(
            "a tensor that the step was given requires grad, and a step computes the gradients of "
            "what its optimizer updates only; pass tensor.detach(), or keep your own loop around "
            'torch.compile(model, backend="nimble")'
        ) from None


def _refuse_sparse(modules: Mapping[str, nn.Module]) -> None:
    for root in modules.values():
        for name, module in root.named_modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
                raise InputError(
                    f"{name!r} is an {type(module).__name__} with sparse=True, whose gradient has "
                    "other rows in every step; make it with sparse=False"
                )


def _refuse_distributed(model: nn.Module) -> None:
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise InputError(
            "DistributedDataParallel averages gradients between processes while backward makes "
            "them, which a plan of one process leaves out; pass the module inside of it "
            "(model.module) to train in this process alone, or keep your own loop around "
            'DistributedDataParallel(torch.compile(model, backend="nimble"))'
        )


def _why_dropped() -> str:
    return (
        "what the optimizer updates, or which of its terms are not 0, was changed between steps. "
        "Its numbers may change with every step, unless its code needs them as Python's"
    )


def _paths(slots: tuple[Slot, ...], reached: tuple[bool, ...]) -> frozenset[str]:
    return frozenset(slot.path for slot, is_ in zip(slots, reached, strict=True) if is_)
