"""A plan made by hand, for tests of replay: every value has a slot to itself."""

from __future__ import annotations

from typing import Any

import torch

from nimble import _aten, _core

Spec = tuple[Any, ...]


def contiguous(shape: tuple[int, ...]) -> list[int]:
    return list(torch.empty(shape, device="meta").stride())


class Program:
    def __init__(self, room: int = 32) -> None:
        self.table = _aten.Table(room, room)
        self.inputs: list[Spec] = []
        self.specs: list[Spec] = []
        self.calls: list[_aten.Call] = []
        self.mutated: list[int] = []
        self._room, self._used = room, 0

    def _value(self, like: torch.Tensor, strides: list[int]) -> _aten.Ref:
        id = self._used
        self.table.value(id, id, like.dtype, list(like.shape), strides, 0)
        self._used += 1
        return _aten.Ref(id)

    def input(self, like: torch.Tensor, mutated: bool = False) -> _aten.Ref:
        id = self._used
        steps = [(n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True)]
        self.table.storage(id, (sum(steps) + 1) * like.itemsize if like.numel() else 0)
        self.inputs.append((id, like.dtype, list(like.shape), list(like.stride())))
        self.mutated += [id] * mutated
        return self._value(like, list(like.stride()))

    def memory(self, tensor: torch.Tensor, mutated: bool = False) -> _aten.Ref:
        self.table.memory(self._used, tensor)
        self.mutated += [self._used] * mutated
        return self._value(tensor, list(tensor.stride()))

    def scratch(self, *shape: int, dtype: torch.dtype = torch.float32) -> _aten.Ref:
        return self.memory(torch.empty(shape, dtype=dtype))

    def output(self, *shape: int, dtype: torch.dtype = torch.float32) -> _aten.Ref:
        """A value that is allocated at every call, and the next output."""
        like = torch.empty(shape, dtype=dtype, device="meta")
        self.table.storage(self._used, like.numel() * like.itemsize)
        self.specs.append(("fresh", self._used, dtype, list(shape), contiguous(shape), 0))
        return self._value(like, contiguous(shape))

    def call(self, op: str, args: list[Any], *results: _aten.Ref, **kwargs: Any) -> None:
        name, _, overload = op.partition(".")
        ids: list[int | None] = [ref.id for ref in results]
        self.calls.append(self.table.call(f"aten::{name}", overload, args, kwargs, ids))

    def plan(
        self, outputs: list[int] | None = None, streams: int = 1, repeatable: bool = False
    ) -> Program:
        """Task i goes to stream i modulo `streams` and waits for task i - 1."""
        self.tape = _core.Tape(streams, len(self.calls), self._room)
        for task, call in enumerate(self.calls):
            if streams > 1 and task > 0:
                self.tape.wait(task % streams, task - 1)
            self.tape.call(task % streams, task, call.fn, call.context)
        self.tape.finish()
        places = list(range(len(self.specs))) if outputs is None else outputs
        api = _core.replay_api
        self.table.plan(
            self.tape.address, api, self.inputs, self.specs, places, self.mutated, repeatable
        )
        return self

    def __call__(
        self, *tensors: torch.Tensor, watch: _aten.Watch | None = None
    ) -> list[torch.Tensor]:
        return self.table.replay(list(tensors), watch)
