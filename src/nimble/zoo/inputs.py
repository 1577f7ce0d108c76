"""Random inputs that look like given ones."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

T = TypeVar("T")


def random_like(tree: T, *, seed: int = 0) -> T:
    """The same structure with other tensors in it, of the same shapes and dtypes.

    Floats are drawn from a normal distribution and integers from the range of those given, so that
    ids stay valid, but not all as they were; booleans and everything that is no tensor are kept. A
    tensor that occurs twice does so afterwards.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn_for: dict[Tensor, Tensor] = {}

    def draw(tensor: Tensor) -> Tensor:
        if tensor not in drawn_for:
            drawn_for[tensor] = draw_one(tensor)
        return drawn_for[tensor]

    def draw_one(tensor: Tensor) -> Tensor:
        if tensor.dtype == torch.bool or tensor.numel() == 0:
            return tensor
        fresh = torch.empty_like(tensor, device="cpu")
        if tensor.is_floating_point() or tensor.is_complex():
            fresh.normal_(generator=generator)
        else:
            low, high = int(tensor.min()), int(tensor.max())
            # Of one number alone the range is not known; up from zero is where ids are valid.
            low = min(low, 0) if low == high else low
            fresh.random_(low, high + 1, generator=generator)
            while low < high and torch.equal(fresh, tensor.cpu()):
                fresh.random_(low, high + 1, generator=generator)
        return fresh.to(tensor.device)

    drawn: T = tree_map_only(Tensor, draw, tree)
    return drawn
