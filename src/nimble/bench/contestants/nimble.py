"""Nimble itself, with `workers` as its threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

import nimble
from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import naturally
from nimble.bench.overhead import Overhead, overhead
from nimble.engine import Engine


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    engine = nimble.compile(model, args, kwargs, workers=threads, progress=False)
    return Replayed(engine, args, kwargs)


class Replayed:
    """An engine that is called with flat tensors, and can say what its scheduling costs."""

    def __init__(self, engine: Engine, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._engine = engine
        self._run = naturally(engine, args, kwargs)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        return self._run(tensors)

    def overhead(self, tensors: list[torch.Tensor]) -> Overhead | None:
        if not self._engine.plans[-1].replay.native:
            return None  # Tasks inside of a captured graph cannot be timed.
        return overhead(partial(self._run, tensors), self._engine.plans[-1])
