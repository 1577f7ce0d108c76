"""Writes that PyTorch does not count: those of optimizers with fused kernels."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


class Concerned(Protocol):
    def note_writes(self, tensors: Set[int]) -> None:
        """These tensors, by id, were written."""

    def __hash__(self) -> int: ...


concerned: WeakSet[Concerned] = WeakSet()
"""Who wants to know."""


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if torch.compiler.is_compiling() or not concerned:
        return
    written = {id(p) for g in optimizer.param_groups if g.get("fused") for p in g["params"]}
    if written:
        for each in tuple(concerned):
            each.note_writes(written)


register_optimizer_step_post_hook(_after_step)
