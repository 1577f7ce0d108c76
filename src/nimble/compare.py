"""What eager PyTorch answers, and whether another answer is the same."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nimble.capture.structure import Structure, flatten, unflatten

SENSITIVE = 1e-2
"""Two inputs must give results that differ by this much, or a wrong answer could not be seen."""
FLOOR, SLACK = 1e-4, 4.0
"""Tolerance: the larger of FLOOR and SLACK times the error of eager PyTorch itself."""


@dataclass(frozen=True)
class Reference:
    """What eager PyTorch gives, in the model's precision and in double."""

    eager: list[torch.Tensor]
    exact: list[torch.Tensor]
    structure: Structure

    @staticmethod
    def of(
        model: Callable[..., Any], tensors: Sequence[torch.Tensor], structure: Structure
    ) -> Reference:
        torch.manual_seed(0)
        eager, shape = flatten(call(_apart(model), tensors, structure))
        wide = _apart(model)
        if isinstance(wide, nn.Module):
            wide = wide.double()
        try:
            torch.manual_seed(0)
            exact = flatten(call(wide, [_double(t) for t in tensors], structure))[0]
        except RuntimeError:
            # Precision is written into some models; then eager itself is the reference.
            exact = eager
        return Reference(eager, exact, shape)

    def differs(self, got: list[torch.Tensor], structure: Structure) -> str:
        """Why the results are not eager's; an empty string if they are."""
        if structure != self.structure:
            return "the structure of the results differs"
        for number, (mine, theirs) in enumerate(zip(got, self.eager, strict=True)):
            if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
                return (
                    f"result {number} is {mine.dtype} {tuple(mine.shape)}, eager's is "
                    f"{theirs.dtype} {tuple(theirs.shape)}"
                )
            if mine.numel() > 1 and mine.stride() != theirs.stride():
                return f"result {number} has strides {mine.stride()}, eager's {theirs.stride()}"
        for number in range(len(got)):
            error = relative_error(got[number : number + 1], self.exact[number : number + 1])
            own = relative_error(self.eager[number : number + 1], self.exact[number : number + 1])
            if not error <= max(FLOOR, SLACK * own):
                return f"result {number} is off by {error:.1e} (eager by {own:.1e})"
        return ""


def call(model: Callable[..., Any], tensors: Sequence[torch.Tensor], structure: Structure) -> Any:
    """Call a model on copies of the tensors, without gradients."""
    args, kwargs = unflatten(structure, [tensor.clone() for tensor in tensors])
    with torch.no_grad():
        return model(*args, **kwargs)


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
