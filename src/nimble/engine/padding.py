"""A smaller batch on a larger plan: which plan, and the proof that it is the same computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from nimble.capture import Captured
from nimble.capture.structure import Structure
from nimble.errors import CaptureError, InputError
from nimble.ladder import pad_rows, resized
from nimble.plan import Plan
from nimble.rewrite.rows import dependent_rows, different_tasks, not_fresh
from nimble.signature import Signature

Capture = Callable[[list[torch.Tensor], Structure], Captured]
"""The model, called on these tensors, as a graph."""


def rows_of(signature: Signature) -> int:
    return next((shape[0] for _, shape, _ in signature.tensors if shape), 0)


def next_rung(plans: Iterable[Plan], signature: Signature) -> tuple[Plan, int] | None:
    """The smallest plan of the ladder that this call fits in when rows are added, and how many it
    has."""
    fits = [
        (rows_of(plan.signature), plan, rows)
        for plan in plans
        if plan.paddable and (rows := _rows_to_pad(signature, plan.signature)) is not None
    ]
    return min(fits, key=lambda fit: fit[0])[1:] if fits else None


def padded(plan: Plan, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors with as many rows as the plan is for."""
    wide = rows_of(plan.signature)
    return [
        pad_rows(tensor, wide) if shape[:1] == (wide,) else tensor
        for tensor, (_, shape, _) in zip(tensors, plan.signature.tensors, strict=True)
    ]


def fewer(plan: Plan, rows: int) -> list[torch.Tensor]:
    """The plan's example with this many rows."""
    wide = rows_of(plan.signature)
    return [t[:rows] if t.shape[:1] == (wide,) else t for t in plan.example]


def why_unpaddable(
    capture: Capture, plan: Plan, tensors: list[torch.Tensor], rows: int
) -> str | None:
    """Why a call with fewer rows is not the same computation as the plan; None if it is."""
    structure, wide = plan.signature.structure, rows_of(plan.signature)
    mine = capture(plan.example, structure)
    return not_fresh(mine.graph) or _difference(capture, mine, structure, wide, tensors, rows)


def require_independent_rows(
    capture: Capture, tensors: list[torch.Tensor], structure: Structure, rows: int
) -> None:
    """Raise InputError if smaller batches could not be padded to this one."""
    mine = capture(tensors, structure)
    more = resized(tensors, {0: rows + 1})
    why = dependent_rows(mine.graph, rows)
    why = why or _difference(capture, mine, structure, rows, more, rows + 1)
    if why is not None:
        raise InputError(
            f"pad='batch' needs rows that do not influence each other, and that could not be "
            f"proven: {why}. Leave out pad= and declare the sizes you need in shapes="
        )


def _difference(
    capture: Capture,
    mine: Captured,
    structure: Structure,
    rows: int,
    tensors: list[torch.Tensor],
    others: int,
) -> str | None:
    """In what the model differs when called on tensors with another number of rows."""
    try:
        other = capture(tensors, structure)
    except CaptureError as error:
        return f"with {others} rows {error}"
    if mine.output != other.output:
        return "a result that is no tensor depends on the number of rows"
    why = different_tasks(mine.graph, other.graph, rows, others)
    return why or (dependent_rows(other.graph, others) if others > 1 else None)


def _rows_to_pad(call: Signature, plan: Signature) -> int | None:
    """How many rows a call has that differs from a plan in having fewer of them, in every tensor
    that has rows; None if it differs in more."""
    wide, rows = rows_of(plan), rows_of(call)
    types = tuple(
        (dtype, (rows, *shape[1:]) if shape[:1] == (wide,) else shape, strides)
        for dtype, shape, strides in plan.tensors
    )
    return rows if rows < wide and replace(plan, tensors=types) == call else None
