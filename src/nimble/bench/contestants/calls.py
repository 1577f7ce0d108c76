"""How contestants are called: as the user calls the model, or with flat tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nimble.bench.contestants import Run
from nimble.capture.structure import flatten, unflatten


def naturally(callee: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run:
    """Calls that are made of the flat tensors as `args` and `kwargs` are of theirs."""
    if not kwargs and all(type(arg) is torch.Tensor for arg in args):
        return lambda tensors: callee(*tensors)
    structure = flatten((args, dict(kwargs)))[1]

    def run(tensors: list[torch.Tensor]) -> Any:
        args, kwargs = unflatten(structure, tensors)
        return callee(*args, **kwargs)

    return run


class Flat(nn.Module):
    """The model with flat tensors in and out, for peers that know no other arguments."""

    def __init__(
        self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        tensors, self._structure = flatten((args, dict(kwargs)))
        self.example = tuple(tensors)
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = unflatten(self._structure, list(tensors))
        return tuple(flatten(self.model(*args, **kwargs))[0])
