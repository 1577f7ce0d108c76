"""PyTorch as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nimble.bench.training import Steps, Training, eager_step


def load(model: Training, args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int) -> Steps:
    optimizer = model.optimizer()
    return Steps(lambda *batch: eager_step(model, optimizer, batch), optimizer, args)
