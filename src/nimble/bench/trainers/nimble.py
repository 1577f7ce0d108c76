"""Nimble: the whole step in one plan, with `workers` as its threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nimble
from nimble.bench.training import Steps, Training, loss


def load(model: Training, args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int) -> Steps:
    optimizer = model.optimizer()
    step = nimble.compile_step(
        model.network, loss, optimizer, args, workers=threads, progress=False
    )
    return Steps(step, optimizer, args)
