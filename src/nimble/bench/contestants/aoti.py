"""AOTInductor: exported, compiled into a package with frozen weights, and loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._inductor
import torch._inductor.compile_fx

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import Flat


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    flat = Flat(model, args, kwargs)
    program = torch.export.export(flat, flat.example)
    package = torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(Path(tempfile.mkdtemp()) / "model.pt2"),
        inductor_configs={"freezing": True},
    )
    loaded = torch._inductor.aoti_load_package(package)
    return lambda tensors: loaded(*tensors)
