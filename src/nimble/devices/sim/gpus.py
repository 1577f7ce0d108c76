"""GPUs as data: one TOML file each in `data/`, or anywhere a user keeps one."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from nimble.errors import InputError
from nimble.graph import DType

_DATA = files(__package__) / "data"


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do at most, according to its maker."""

    name: str
    source: str
    """Where the figures are from."""
    sms: int
    """Streaming multiprocessors."""
    fp32_tflops: float
    fp16_tflops: float
    """Of tensor cores, for float16 and bfloat16; as fp32_tflops where there are none."""
    bandwidth_gbs: float
    memory_gb: float
    l2_mb: float
    tf32_tflops: float | None = None
    """Of tensor cores on float32, where they have that."""

    def flops(self, dtype: DType, *, convolution: bool = False) -> float:
        """The peak per second for a dtype. PyTorch lets convolutions use TF32, and matrix products
        not, unless told otherwise."""
        if dtype in (DType.FLOAT16, DType.BFLOAT16):
            return self.fp16_tflops * 1e12
        if convolution and self.tf32_tflops is not None:
            return self.tf32_tflops * 1e12
        return self.fp32_tflops * 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.bandwidth_gbs * 1e9


def gpu_names() -> list[str]:
    """The GPUs that come with Nimble."""
    names = (entry.name for entry in _DATA.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def find_gpu(name: str) -> Gpu:
    """A GPU by name (`v100`), or from a TOML file of your own.

    >>> find_gpu("v100").sms
    80
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"--gpu {name}: no such file")
        try:
            return _parse(name, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{name} is no TOML file: {error}") from error
    if name not in gpu_names():
        raise InputError(
            f"no GPU {name!r}; expected one of {', '.join(gpu_names())}, or a file.toml that "
            "describes another (docs/gpu.md)"
        )
    return _parse(name, (_DATA / f"{name}.toml").read_text())


def _parse(where: str, text: str) -> Gpu:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is no TOML file: {error}") from error
    known = {field.name: field for field in fields(Gpu)}
    needed = {name for name, field in known.items() if field.default is MISSING}
    missing, unknown = sorted(needed - data.keys()), sorted(data.keys() - known)
    if missing or unknown:
        raise InputError(
            f"{where}: missing {', '.join(missing) or 'nothing'}; unknown "
            f"{', '.join(unknown) or 'nothing'} (docs/gpu.md says what a GPU's file holds)"
        )
    for name, value in data.items():
        _check(where, name, value)
    return Gpu(**data)


def _check(where: str, name: str, value: Any) -> None:
    if name in ("name", "source"):
        if not isinstance(value, str):
            raise InputError(f"{where}: {name} = {value!r}; expected text")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise InputError(f"{where}: {name} = {value!r}; expected a number above 0")
    elif name == "sms" and not isinstance(value, int):
        raise InputError(f"{where}: sms = {value!r}; expected a whole number")
