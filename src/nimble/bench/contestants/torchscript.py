"""TorchScript: traced, frozen, optimised for inference."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.jit._trace import TracerWarning

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import Flat


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    flat = Flat(model, args, kwargs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
        warnings.filterwarnings("ignore", category=TracerWarning)
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            flat, flat.example, check_trace=False
        )
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    # The profiling executor specialises during the first two calls.
    for _ in range(2):
        frozen(*flat.example)
    return lambda tensors: frozen(*tensors)
