"""Runs one op on a table of its own, so that tests can compare it with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from nimble import _aten

Strides = Callable[[torch.Tensor], tuple[int, ...]]


def span(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to the end of the last."""
    if tensor.numel() == 0:
        return 0
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.itemsize


def as_eager(tensor: torch.Tensor) -> tuple[int, ...]:
    return tensor.stride()


def reversed_with_gaps(tensor: torch.Tensor) -> tuple[int, ...]:
    """The first dimension innermost, and an unused element after every one."""
    strides, step = [], 2
    for size in tensor.shape:
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides)


class OnTable:
    """An op's arguments and results in the memory of a table; `run` calls it."""

    def __init__(
        self,
        op: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        expected: Any,
        strides: Strides = as_eager,
    ) -> None:
        given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        like = [t for t in tree_flatten(expected)[0] if isinstance(t, torch.Tensor) or t is None]
        self.table = _aten.Table(1 + len(given), len(given) + len(like))
        self.given: list[torch.Tensor] = []
        self.results: list[torch.Tensor | None] = []
        self._results(like, len(given), strides)
        args, kwargs = tree_map(self._argument, (list(args), kwargs))
        ids = [None if t is None else len(given) + i for i, t in enumerate(like)]
        name, _, overload = op.name().partition(".")
        self.call = self.table.call(name, overload, args, kwargs, ids)

    def _results(self, like: list[torch.Tensor | None], first: int, strides: Strides) -> None:
        places, size = [], 0
        for tensor in like:
            places.append(size)
            if tensor is not None:
                seen = torch.empty_strided(tensor.shape, strides(tensor), dtype=tensor.dtype)
                size += -(-span(seen) // 64) * 64
        arena = torch.full((size,), 0xFF, dtype=torch.uint8)
        self.table.memory(0, arena)
        for i, (tensor, place) in enumerate(zip(like, places, strict=True)):
            if tensor is None:
                self.results.append(None)
                continue
            shape, seen_strides = list(tensor.shape), list(strides(tensor))
            self.table.value(first + i, 0, tensor.dtype, shape, seen_strides, place)
            seen = torch.empty(0, dtype=tensor.dtype).set_(
                arena.untyped_storage(), place // tensor.itemsize, shape, seen_strides
            )
            self.results.append(seen)

    def _argument(self, given: Any) -> Any:
        if not isinstance(given, torch.Tensor):
            return given
        memory = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype)
        if given.numel():
            memory.as_strided((span(given) // given.itemsize,), (1,)).copy_(
                given.detach().as_strided((span(given) // given.itemsize,), (1,))
            )
        id = len(self.given)
        self.given.append(memory)
        self.table.memory(1 + id, memory)
        self.table.value(id, 1 + id, given.dtype, list(given.shape), list(given.stride()), 0)
        return _aten.Ref(id)

    def run(self) -> list[torch.Tensor | None]:
        self.table.run([self.call])
        return self.results
