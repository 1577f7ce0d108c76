"""Compare an engine with eager PyTorch, in a way that is able to fail."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nimble import zoo
from nimble.api import compile
from nimble.capture.structure import Structure, describe, flatten, unflatten
from nimble.cli.targets import Made
from nimble.engine import Engine

SENSITIVE = 1e-2
"""Two inputs must give results that differ by this much, or a wrong answer could not be seen."""
TRIES = 20
"""Seeds for the second input, until it gives results that differ."""
FLOOR, SLACK = 1e-4, 4.0
"""Tolerance: the larger of FLOOR and SLACK times the error of eager PyTorch itself."""


@dataclass(frozen=True)
class Row:
    """What was found out about one model."""

    name: str
    ok: bool
    why: str = ""
    max_abs_err: float = float("nan")
    """max|y - y64| / max|y64|, the largest over all results and both inputs."""
    eager_err: float = float("nan")
    """The same for eager PyTorch in the model's own precision."""
    tasks: int = 0
    fallbacks: int = 0
    streams: int = 0
    waits: int = 0
    arena_bytes: int = 0
    arena_lower_bound: int = 0
    compile_s: float = 0.0


def check(made: Made, workers: int | None = None) -> Row:
    """Compile, compare with eager on two inputs, and say what was found."""
    model = made.model
    first, structure = flatten((made.args, made.kwargs))
    with one_thread():
        if isinstance(model, nn.Module):
            zoo.calibrate(model, made.args, made.kwargs)
        references = [Reference.of(model, first, structure)]
        second, reference, spread = _another(model, references[0], first, structure)
        references.append(reference)
    if first and spread < SENSITIVE:
        return Row(made.name, False, f"two inputs give results only {spread:.1e} apart")
    start = time.perf_counter()
    engine = compile(model, made.args, made.kwargs, workers=workers, progress=False, name=made.name)
    took = time.perf_counter() - start
    why, error, own = "", 0.0, 0.0
    before = {name: tensor.clone() for name, tensor in _state(model).items()}
    for tensors, reference in zip((first, second), references, strict=True):
        with torch.no_grad():
            for name, tensor in _state(model).items():
                tensor.copy_(before[name])
        torch.manual_seed(0)
        outcome = Outcome.of(engine, model, tensors, structure)
        why = why or reference.differs(outcome)
        if not why:
            error = max(error, relative_error(outcome.results, reference.exact))
        own = max(own, relative_error(reference.eager, reference.exact))
    return _row(made.name, engine, why, error, own, took)


def _another(
    model: Callable[..., Any],
    first: Reference,
    tensors: Sequence[torch.Tensor],
    structure: Structure,
) -> tuple[list[torch.Tensor], Reference, float]:
    """Other inputs, that give the most different results of those tried; not all need be valid."""
    for seed in range(1, TRIES + 1):
        second = zoo.random_like(list(tensors), seed=seed)
        try:
            reference = Reference.of(model, second, structure)
        except Exception:
            if seed == TRIES:
                raise
            continue
        spread = _spread(first.exact, reference.exact)
        if spread >= SENSITIVE or seed == TRIES or not tensors:
            break
    return second, reference, spread


def _row(name: str, engine: Engine, why: str, error: float, own: float, took: float) -> Row:
    plan = engine.plans[-1]
    kinds = plan.replay.kinds.values()
    return Row(
        name=name,
        ok=not why,
        why=why,
        max_abs_err=error,
        eager_err=own,
        tasks=len(plan.graph.tasks),
        fallbacks=sum(kind != "native" for kind in kinds),
        streams=len(plan.schedule.streams),
        waits=len(plan.schedule.waits),
        arena_bytes=plan.schedule.arena_bytes,
        arena_lower_bound=plan.schedule.arena_lower_bound,
        compile_s=took,
    )


@dataclass(frozen=True)
class Outcome:
    """What a call gives and leaves behind."""

    results: list[torch.Tensor]
    structure: Structure
    """Of the results; whatever is no tensor is in it by value."""
    after: dict[str, torch.Tensor]
    """Inputs, parameters and buffers as they are afterwards."""
    shared: list[str]
    """Which results share memory with one another, or with something of `after`."""

    @staticmethod
    def of(
        run: Callable[..., Any],
        model: Callable[..., Any],
        tensors: Sequence[torch.Tensor],
        structure: Structure,
    ) -> Outcome:
        """Call `run`, which is `model` or was made from it, on copies of the tensors."""
        given = [tensor.clone() for tensor in tensors]
        args, kwargs = unflatten(structure, given)
        with torch.no_grad():
            results, shape = flatten(run(*args, **kwargs))
        after = {f"input {i}": tensor for i, tensor in enumerate(given)} | _state(model)
        return Outcome(results, shape, after, _shared(results, after))


def _shared(results: list[torch.Tensor], after: dict[str, torch.Tensor]) -> list[str]:
    owners: dict[int, str] = {}
    found = []
    named = {f"result {i}": result for i, result in enumerate(results)}
    for name, tensor in {**after, **named}.items():
        if tensor.numel():
            owner = owners.setdefault(tensor.untyped_storage().data_ptr(), name)
            if name in named and owner != name:
                found.append(f"{name} shares memory with {owner}")
    return found


@dataclass(frozen=True)
class Reference:
    """What eager PyTorch gives, in the model's precision and in double."""

    outcome: Outcome
    wide: Outcome

    @property
    def eager(self) -> list[torch.Tensor]:
        return self.outcome.results

    @property
    def exact(self) -> list[torch.Tensor]:
        return self.wide.results

    @staticmethod
    def of(
        model: Callable[..., Any], tensors: Sequence[torch.Tensor], structure: Structure
    ) -> Reference:
        torch.manual_seed(0)
        mine = _apart(model)
        outcome = Outcome.of(mine, mine, tensors, structure)
        wide = _apart(model)
        if isinstance(wide, nn.Module):
            wide = wide.double()
        try:
            torch.manual_seed(0)
            exact = Outcome.of(wide, wide, [_double(t) for t in tensors], structure)
        except RuntimeError:
            # Precision is written into some models; then eager itself is the reference.
            exact = outcome
        return Reference(outcome, exact)

    def differs(self, got: Outcome) -> str:
        """Why an outcome is not eager's; an empty string if it is."""
        eager = self.outcome
        if got.structure != eager.structure:
            return f"the results are {describe(got.structure)}, eager's {describe(eager.structure)}"
        for number, (mine, theirs) in enumerate(zip(got.results, eager.results, strict=True)):
            if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
                return (
                    f"result {number} is {mine.dtype} {tuple(mine.shape)}, eager's is "
                    f"{theirs.dtype} {tuple(theirs.shape)}"
                )
            if mine.numel() > 1 and mine.stride() != theirs.stride():
                return f"result {number} has strides {mine.stride()}, eager's {theirs.stride()}"
        if got.shared != eager.shared:
            return f"aliasing: {got.shared or 'none'}, eager's {eager.shared or 'none'}"
        for number in range(len(got.results)):
            lists = (o.results[number : number + 1] for o in (got, eager, self.wide))
            if why := _off(*lists):
                return f"result {number} {why}"
        for name, mine in got.after.items():
            if why := _off([mine], [eager.after[name]], [self.wide.after[name]]):
                return f"{name} is left otherwise than by eager, and {why}"
        return ""


def _off(
    got: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> str:
    error, own = relative_error(got, exact), relative_error(eager, exact)
    return "" if error <= max(FLOOR, SLACK * own) else f"is off by {error:.1e} (eager by {own:.1e})"


def _state(model: Callable[..., Any]) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, those that are not saved included."""
    if not isinstance(model, nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def relative_error(got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The largest max|y - y64| / max|y64|; infinite where only one of them is a number."""
    worst = 0.0
    for mine, theirs in zip(got, exact, strict=True):
        if mine.numel() == 0:
            continue
        a, b = (
            torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.double()
            for t in (mine, theirs)
        )
        same = (a == b) | (a.isnan() & b.isnan())
        if bool(same.all()):
            continue
        scale = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 0.0
        gap = torch.where(same, 0.0, (a - b).abs()).max().item()
        worst = max(worst, gap / scale if scale and gap == gap else float("inf"))
    return worst


def _spread(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    if [t.shape for t in a] != [t.shape for t in b]:
        return float("inf")
    return relative_error(a, b)


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Eager's threads spin while they wait for each other, which on a busy machine takes ages."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _apart(model: Callable[..., Any]) -> Callable[..., Any]:
    """A copy, so that the reference does not touch the state of the model under test."""
    return copy.deepcopy(model) if isinstance(model, nn.Module) else model
