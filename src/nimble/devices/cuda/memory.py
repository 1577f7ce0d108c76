"""Where the values of a plan lie on a GPU: one block for the arena, static inputs and results; the
model's own memory for what it owns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import torch

from nimble.capture.dtypes import TO_TORCH
from nimble.devices.cuda.api import Api, Event, Stream
from nimble.devices.device import fitting
from nimble.graph import DType, Graph, Role, align
from nimble.schedule import Schedule

OWNED = (Role.PARAMETER, Role.CONSTANT, Role.STATE)
_EXCHANGED = (Role.INPUT, Role.OUTPUT)


class Arena:
    """The block that all plans of an engine share. They take turns, on whatever streams their
    callers use."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.RLock()
        self._done: Event = api.event()
        """Of the last turn."""
        self._stream: Stream | None = None
        """That it was on."""
        self.block = api.allocate(0)

    def reserve(self, nbytes: int) -> None:
        """Make sure that the block has so many bytes. Plans that were captured on a smaller one
        are captured again when they are called."""
        if self.block.numel() < nbytes:
            # Replays on any stream may still use the old one.
            self._api.synchronize()
            self.block = self._api.allocate(nbytes)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Whatever is launched inside comes after all that was launched in the turn before."""
        with self._lock:
            stream = self._api.current()
            if self._stream is not None and self._stream != stream:
                self._api.wait(stream, self._done)
            try:
                yield
            finally:
                self._api.record(self._done, stream)
                self._stream = stream


def room(schedule: Schedule) -> tuple[dict[int, int], int]:
    """Where static inputs and results lie in the block, after the arena, and how long it is."""
    at = align(schedule.arena_bytes)
    places: dict[int, int] = {}
    for root in schedule.graph.roots(*_EXCHANGED):
        places[root.id] = at
        at += align(root.span)
    return places, at


class Memory:
    """The tensors of a plan's values, on one block."""

    def __init__(
        self,
        schedule: Schedule,
        block: torch.Tensor,
        tensors: Mapping[str, torch.Tensor],
        given: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """`tensors` are the memory of what the model owns, by name; `given`, of inputs and results
        that are not to lie in the block."""
        self._schedule = schedule
        self._graph = schedule.graph
        self.block = block
        self._made: dict[int, torch.Tensor] = {}
        self._homes: dict[int, tuple[torch.UntypedStorage, int]] = {}
        base = int(block.storage_offset()) * block.element_size()
        for root, offset in room(schedule)[0].items():
            self._homes[root] = (block.untyped_storage(), base + offset)
        self._arena = (block.untyped_storage(), base)
        owned = {
            root.id: fitting(root, tensors)
            for root in self._graph.roots(*OWNED)
            if root.dtype is not DType.TOKEN
        }
        for id, tensor in {**owned, **(given or {})}.items():
            start = int(tensor.storage_offset()) * tensor.element_size()
            self._homes[id] = (tensor.untyped_storage(), start)

    def __getitem__(self, id: int) -> torch.Tensor:
        if id not in self._made:
            value, home = self._graph[id], self._graph.homes[id]
            if self._graph[home].role is Role.INTERMEDIATE:
                storage, start = self._arena
                start += self._schedule.offsets[id] or 0
            else:
                storage, start = self._homes[home]
                start += value.offset
            self._made[id] = tensor_on(storage, start, value.dtype, value.shape, value.strides)
        return self._made[id]


def tensor_on(
    storage: torch.UntypedStorage,
    start: int,
    dtype: DType,
    shape: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    """A tensor that begins at byte `start` of a storage."""
    kind = TO_TORCH[dtype]
    made = torch.empty(0, dtype=kind, device=storage.device)
    return made.set_(storage, start // kind.itemsize, shape, strides)


def written(graph: Graph, *roles: Role) -> list[int]:
    """The roots of these roles that the graph writes over."""
    homes = dict.fromkeys(graph.homes[v.id] for v in graph.values if v.overwrites is not None)
    return [home for home in homes if graph[home].role in roles]
