"""PyTorch's names for things, and the IR's."""

from __future__ import annotations

from typing import cast

import torch

from nimble.errors import CaptureError
from nimble.graph import DType, Symbol

TO_TORCH: dict[DType, torch.dtype] = {
    dtype: getattr(torch, dtype.value) for dtype in DType if dtype is not DType.TOKEN
}
FROM_TORCH: dict[torch.dtype, DType] = {theirs: ours for ours, theirs in TO_TORCH.items()}


def dtype_of(tensor: torch.Tensor, what: str) -> DType:
    try:
        return FROM_TORCH[tensor.dtype]
    except KeyError:
        raise CaptureError(
            f"{what} has dtype {tensor.dtype}, which Nimble does not support; "
            f"supported are {', '.join(FROM_TORCH.values())}"
        ) from None


def to_symbol(thing: torch.device | torch.layout | torch.memory_format) -> Symbol:
    if isinstance(thing, torch.device):
        return Symbol("device", str(thing))
    kind = "layout" if isinstance(thing, torch.layout) else "memory_format"
    return Symbol(kind, str(thing).removeprefix("torch."))


def from_symbol(symbol: Symbol) -> torch.device | torch.layout | torch.memory_format:
    if symbol.kind == "device":
        return torch.device(symbol.name)
    kind = {"layout": torch.layout, "memory_format": torch.memory_format}.get(symbol.kind)
    thing = getattr(torch, symbol.name, None)
    if kind is None or not isinstance(thing, kind):
        raise CaptureError(f"{symbol.kind} {symbol.name!r} is not known to this PyTorch")
    return cast(torch.layout | torch.memory_format, thing)
