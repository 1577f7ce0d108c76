"""What eager PyTorch answers and leaves behind, and whether another answer is the same."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nimble import zoo
from nimble.capture.structure import Structure, describe, flatten, unflatten
from nimble.errors import InputError

SENSITIVE = 1e-2
"""Two inputs must give results that differ by this much, or a wrong answer could not be seen."""
TRIES = 20
"""Seeds for the second input, until it gives results that differ."""
FLOOR, SLACK = 1e-4, 4.0
"""Tolerance: the larger of FLOOR and SLACK times the error of eager PyTorch itself."""


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
        after = {f"input {i}": tensor for i, tensor in enumerate(given)} | state_of(model)
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


def state_of(model: Callable[..., Any]) -> dict[str, torch.Tensor]:
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


def spread(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    """How far two results are apart; infinitely, where they differ in shape."""
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


def another(
    model: Callable[..., Any],
    first: Reference,
    tensors: Sequence[torch.Tensor],
    structure: Structure,
) -> tuple[list[torch.Tensor], Reference, float]:
    """Other inputs, that give the most different results of those tried, and how different these
    are. Not all that are tried need be valid for the model."""
    best: tuple[list[torch.Tensor], Reference, float] | None = None
    cause: Exception | None = None
    for seed in range(1, TRIES + 1):
        second = zoo.random_like(list(tensors), seed=seed)
        try:
            reference = Reference.of(model, second, structure)
        except Exception as error:
            cause = cause or error
            continue
        apart = spread(first.exact, reference.exact)
        if best is None or apart > best[2]:
            best = second, reference, apart
        if apart >= SENSITIVE or not tensors:
            break
    if best is None:
        raise InputError(
            f"the model runs on the inputs given, and on none of {TRIES} random ones of the same "
            f"shapes and dtypes; for the first of them it raised {type(cause).__name__}: {cause}"
        ) from cause
    return best


def call(model: Callable[..., Any], tensors: Sequence[torch.Tensor], structure: Structure) -> Any:
    """Call a model on copies of the tensors, without gradients."""
    args, kwargs = unflatten(structure, [tensor.clone() for tensor in tensors])
    with torch.no_grad():
        return model(*args, **kwargs)
