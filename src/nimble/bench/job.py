"""What the referee and a contestant's process tell each other."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

ROUND, OVERHEAD, MEMORY = "round", "overhead", "memory"
"""What a contestant can be asked once it has loaded."""


@dataclass(frozen=True, slots=True)
class Job:
    contestant: str
    target: str
    threads: int
    material: Path
    """The weights and both inputs, so that every process has the same."""
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Loaded:
    compile_s: float
    first_ms: float
    """From the model in memory to its first answer, compilation included."""
    answers: tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


def pack(tensors: Sequence[torch.Tensor]) -> bytes:
    file = io.BytesIO()
    torch.save(list(tensors), file)
    return file.getvalue()


def unpack(data: bytes) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = torch.load(io.BytesIO(data), weights_only=True)
    return tensors


_FOREIGN = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "TVM_", "ORT_", "OV_", "TORCHINDUCTOR_")


def environment(threads: int, folder: Path) -> dict[str, str]:
    """Threads as told, caches in a fresh folder, nothing else that would steer a contestant."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*_FOREIGN, "NIMBLE_"))}
    names = ("OMP", "MKL", "OPENBLAS", "TVM")
    counts = {f"{name}_NUM_THREADS": str(threads) for name in names}
    fresh = {
        "TMPDIR": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "NIMBLE_CACHE": str(folder / "nimble"),
    }
    return kept | counts | fresh
