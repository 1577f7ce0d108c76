"""torch.compile with Inductor: weights frozen, the wrapper in C++ too; on a GPU, CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._inductor.compile_fx

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import naturally
from nimble.capture.structure import flatten


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    tensors = flatten((args, dict(kwargs)))[0]
    on_gpu = any(tensor.device.type == "cuda" for tensor in tensors)
    compiled = (
        torch.compile(model, mode="reduce-overhead")
        if on_gpu
        else torch.compile(model, options={"freezing": True, "cpp_wrapper": True})
    )
    run = naturally(compiled, args, kwargs)
    # It compiles when it is called first; graphs are captured in the second call.
    for _ in range(3 if on_gpu else 1):
        run(tensors)
    return run
