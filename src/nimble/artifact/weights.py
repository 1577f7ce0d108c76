"""The tensors of a saved engine: each is a part of the file, read when it is needed."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import safetensors.torch
import torch

from nimble.artifact.layout import weight
from nimble.capture.dtypes import TO_TORCH
from nimble.errors import ArtifactError
from nimble.graph import DType, Graph, Role, Value

_ONLY = "tensor"
_AT_ONCE = 1 << 20
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def to_bytes(tensor: torch.Tensor) -> bytes:
    value = tensor.detach()
    if value.is_complex():
        value = torch.view_as_real(value)
    return safetensors.torch.save({_ONLY: value.contiguous().cpu()})


class Weights:
    """What a file holds, checked against its digests whenever it is read. The file stays open, so
    that it can be read even after another has taken its name."""

    def __init__(self, path: Path, digests: Mapping[str, str]) -> None:
        self._digests = digests
        self._archive = zipfile.ZipFile(path)

    def read(self, key: str) -> torch.Tensor:
        part = weight(key)
        try:
            data = self._bytes(part)
        except (OSError, KeyError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
            raise ArtifactError(f"{part} is missing or cut off ({error})") from error
        if self._digests.get(part) != hashlib.sha256(data).hexdigest():
            raise ArtifactError(f"{part} was changed after it was saved; save the engine again")
        try:
            return _tensor(data)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ArtifactError(f"{part} cannot be read: {error}") from error

    def _bytes(self, part: str) -> bytearray:
        """Into the memory where they will stay: the largest weights are a good part of a model."""
        data = bytearray()
        with self._archive.open(part) as file:
            while piece := file.read(_AT_ONCE):
                data += piece
        return data


def _tensor(data: bytearray) -> torch.Tensor:
    """What safetensors wrote, in the same memory; its own reader copies."""
    start = 8 + int.from_bytes(data[:8], "little")
    said = json.loads(bytes(data[8:start]))[_ONLY]
    dtype, shape = _DTYPES[said["dtype"]], [int(size) for size in said["shape"]]
    count = math.prod(shape)
    if (
        said["data_offsets"] != [0, count * dtype.itemsize]
        or len(data) - start != said["data_offsets"][1]
    ):
        raise ValueError(f"its {len(data) - start} bytes are not {shape} of {dtype}")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start).reshape(shape)


class Stored(Mapping[str, torch.Tensor]):
    """The parameters and state of a plan by name. Those that it is bound to are held, one copy for
    all plans; the others, of which constants are computed, are read whenever they are asked for."""

    def __init__(
        self,
        graph: Graph,
        keys: Mapping[str, str],
        weights: Weights,
        shared: dict[str, torch.Tensor],
        place: torch.device,
    ) -> None:
        self._keys = keys
        self._weights = weights
        self._place = place
        parts = [graph] if graph.prologue is None else [graph, graph.prologue]
        self._roots = {
            root.name: root
            for part in parts
            for root in part.roots(Role.PARAMETER, Role.STATE)
            if root.dtype is not DType.TOKEN
        }
        if len({keys[name] for name in self._roots}) < len(self._roots):
            raise ArtifactError("the file gives two tensors the same memory")
        self.held: dict[str, torch.Tensor] = {}
        for root in graph.roots(Role.PARAMETER, Role.STATE):
            if root.dtype is not DType.TOKEN:
                key = keys[root.name]
                if key not in shared:
                    shared[key] = self._read(root)
                self.held[root.name] = shared[key]

    @property
    def elsewhere(self) -> dict[str, Callable[[], torch.Tensor]]:
        """How to have those that are not held."""
        return {
            name: partial(self._read, root)
            for name, root in self._roots.items()
            if name not in self.held
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        held = self.held.get(name)
        return self._read(self._roots[name]) if held is None else held

    def __iter__(self) -> Iterator[str]:
        return iter(self._roots)

    def __len__(self) -> int:
        return len(self._roots)

    def _read(self, root: Value) -> torch.Tensor:
        """Laid out as the graph expects."""
        raw = self._weights.read(self._keys[root.name])
        dtype = TO_TORCH[root.dtype]
        value = torch.view_as_complex(raw) if dtype.is_complex else raw
        if value.dtype is not dtype or tuple(value.shape) != root.shape:
            raise ArtifactError(
                f"weight {root.name!r} is {value.dtype} {tuple(value.shape)}; expected {root.type}"
            )
        if value.device == self._place and value.stride() == root.strides:
            return value
        return zeros(dtype, root.shape, root.strides, self._place).copy_(value)


def zeros(
    dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], place: torch.device
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=place).zero_()
