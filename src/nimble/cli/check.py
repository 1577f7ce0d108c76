"""Compare an engine with eager PyTorch, in a way that is able to fail."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn

from nimble import zoo
from nimble.api import compile
from nimble.capture.structure import flatten
from nimble.compare import (
    SENSITIVE,
    Outcome,
    Reference,
    another,
    one_thread,
    relative_error,
    state_of,
)
from nimble.engine import Engine
from nimble.targets import Made


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
        second, reference, apart = another(model, references[0], first, structure)
        references.append(reference)
    if first and apart < SENSITIVE:
        return Row(made.name, False, f"two inputs give results only {apart:.1e} apart")
    start = time.perf_counter()
    engine = compile(model, made.args, made.kwargs, workers=workers, progress=False, name=made.name)
    took = time.perf_counter() - start
    why, error, own = "", 0.0, 0.0
    before = {name: tensor.clone() for name, tensor in state_of(model).items()}
    for tensors, reference in zip((first, second), references, strict=True):
        with torch.no_grad():
            for name, tensor in state_of(model).items():
                tensor.copy_(before[name])
        torch.manual_seed(0)
        outcome = Outcome.of(engine, model, tensors, structure)
        why = why or reference.differs(outcome)
        if not why:
            error = max(error, relative_error(outcome.results, reference.exact))
        own = max(own, relative_error(reference.eager, reference.exact))
    return _row(made.name, engine, why, error, own, took)


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
