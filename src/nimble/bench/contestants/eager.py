"""PyTorch as it comes, in inference mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import naturally


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    call = naturally(model, args, kwargs)

    def run(tensors: list[torch.Tensor]) -> Any:
        with torch.inference_mode():
            return call(tensors)

    return run
