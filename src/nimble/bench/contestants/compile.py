"""torch.compile with Inductor: weights frozen, the wrapper in C++ too."""

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
    compiled = torch.compile(model, options={"freezing": True, "cpp_wrapper": True})
    run = naturally(compiled, args, kwargs)
    # It compiles when it is called first.
    run(flatten((args, dict(kwargs)))[0])
    return run
