"""TVM: Relax with its default pipeline for this processor, not tuned (that takes hours)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import Flat


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    flat = Flat(model, args, kwargs)
    module = from_exported_program(torch.export.export(flat, flat.example))
    target = tvm.target.Target({"kind": "llvm", "mcpu": _processor(), "num-cores": threads})
    with tvm.transform.PassContext(opt_level=3):
        built = tvm.compile(module, target=target)
    main = relax.VirtualMachine(built, tvm.cpu())["main"]

    def run(tensors: list[torch.Tensor]) -> Any:
        results = main(*(tvm.runtime.from_dlpack(tensor) for tensor in tensors))
        return [torch.utils.dlpack.from_dlpack(result) for result in results]

    return run


def _processor() -> str:
    """By what the kernel says it can do: a virtual machine may lack what its model has."""
    flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"} <= flags:
        return "x86-64-v4"
    return "x86-64-v3" if {"avx2", "fma", "bmi2"} <= flags else "x86-64-v2"
