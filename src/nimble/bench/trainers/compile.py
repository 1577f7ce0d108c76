"""torch.compile with Inductor: forward and backward, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch._inductor.compile_fx

from nimble.bench.training import Steps, Training, eager_step


def load(model: Training, args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int) -> Steps:
    optimizer = model.optimizer()
    loss = torch.compile(model.loss)
    optimizer.step = torch.compile(optimizer.step)  # type: ignore[assignment, method-assign]
    return Steps(lambda *batch: eager_step(model, optimizer, batch, loss), optimizer, args)
