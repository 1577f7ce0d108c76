"""Copies of tensors that keep their strides, gaps and overlaps included."""

from __future__ import annotations

import torch


def copy_exactly(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same contents and strides, in memory of its own."""
    source = tensor.detach()
    if source.numel() == 0:
        return torch.empty_strided(
            source.shape, source.stride(), dtype=source.dtype, device=source.device
        )
    span = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride(), strict=True))
    memory = torch.zeros(span, dtype=source.dtype, device=source.device)
    copy = memory.as_strided(source.shape, source.stride())
    if span < source.numel():
        # Elements that share memory cannot be written one by one; copy the memory they share.
        memory.copy_(source.as_strided((span,), (1,)))
        return copy
    return copy.copy_(source)
