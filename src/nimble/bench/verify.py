"""Whether a contestant's answers are the model's. No time counts before they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nimble.bench.training import Training
from nimble.capture.structure import flatten
from nimble.compare import FLOOR, SENSITIVE, SLACK, Reference, another, one_thread, relative_error
from nimble.errors import InputError
from nimble.targets import Made

Answer = Sequence[torch.Tensor]
TRAINING_FLOOR = 5e-3
"""Of the change of a loss, which is the difference of two numbers a thousand times as large."""


@dataclass(frozen=True)
class Exam:
    """Two inputs, and what eager PyTorch answers to each in its own precision and in double."""

    inputs: tuple[list[torch.Tensor], list[torch.Tensor]]
    references: tuple[Reference, Reference]
    floor: float = FLOOR
    """What may be off however exact eager is."""

    @staticmethod
    def of(made: Made) -> Exam:
        """Refuses a model whose two answers are so close that one would pass for the other."""
        first, structure = flatten((made.args, made.kwargs))
        with one_thread():
            a = Reference.of(made.model, first, structure)
            second, b, apart = another(made.model, a, first, structure)
        floor = TRAINING_FLOOR if isinstance(made.model, Training) else FLOOR
        exam = Exam((first, second), (a, b), floor)
        if not a.eager:
            raise InputError(
                f"{made.name}: the model returns no tensors, so nothing can be compared"
            )
        needed = max(SENSITIVE, 2 * exam.allowed)
        if apart < needed or exam.allowed > 0.5:
            raise InputError(
                f"{made.name}: two inputs give answers only {apart:.1e} apart, where "
                f"{needed:.1e} is needed: a wrong answer could not be seen"
            )
        return exam

    @property
    def allowed(self) -> float:
        """The largest error that passes for any result."""
        own = max(relative_error(r.eager, r.exact) for r in self.references)
        return max(self.floor, SLACK * own)

    def error(self, answers: Sequence[Answer]) -> float:
        """max|y - y64| / max|y64|, the largest over results and inputs."""
        pairs = zip(answers, self.references, strict=True)
        return max(relative_error(answer, reference.exact) for answer, reference in pairs)

    def wrong(self, answers: Sequence[Answer]) -> str:
        """Why the two answers are not the model's; an empty string if they are."""
        for answer, reference in zip(answers, self.references, strict=True):
            if why := _differs(answer, reference, self.floor):
                return f"wrong: {why}"
        return ""


def _differs(answer: Answer, reference: Reference, floor: float) -> str:
    if len(answer) != len(reference.eager):
        return f"{len(answer)} results instead of {len(reference.eager)}"
    results = zip(answer, reference.eager, reference.exact, strict=True)
    for number, (mine, eager, exact) in enumerate(results):
        if (mine.dtype, mine.shape) != (eager.dtype, eager.shape):
            return (
                f"result {number} is {mine.dtype} {tuple(mine.shape)}, "
                f"eager's {eager.dtype} {tuple(eager.shape)}"
            )
        allowed = max(floor, SLACK * relative_error([eager], [exact]))
        error = relative_error([mine], [exact])
        if not error <= allowed:
            return f"off by {error:.0e} (allowed {allowed:.0e})"
    return ""
