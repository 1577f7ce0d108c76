"""Several replays of one schedule, so that callers on several threads need not queue."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakSet

import torch

from nimble._aten import Watch
from nimble.devices.cpu.replay import Bound, Replay
from nimble.devices.device import Recording, Span, length
from nimble.schedule import Schedule


class ReplayPool:
    """Gives every call a replay that nobody else is using, if it can.

    The first is there from the start, for a caller who is alone: it may use all workers. Others,
    each with an arena of its own, are bound when a call finds company, up to two for each of
    `workers`; after that calls queue. They have one stream (`narrow`): callers that run side by
    side keep all cores busy, and streams would only make them wait for each other. A model with
    state has one replay only, since its calls must see each other's updates. A replay may be shared
    at any time: it runs one call after the other. So what an interrupt keeps from coming back is
    slower, not lost.
    """

    native = True

    def __init__(
        self, first: Replay, workers: int, narrow: Callable[[], Schedule] | None = None
    ) -> None:
        self._all = [first]
        self._most = 0 if first.has_state else 2 * workers
        self._narrow = narrow
        self._lock = threading.Lock()
        self._first = [first]
        self._free: list[Replay] = []
        self._callers: list[None] = []
        _pools.add(self)

    @property
    def schedule(self) -> Schedule:
        return self._all[0].schedule

    @property
    def kinds(self) -> dict[str, str]:
        """Task name → how it runs: `native`, `out`, `copy` or `inplace`."""
        return self._all[0].kinds

    def __len__(self) -> int:
        return len(self._all)

    def __call__(
        self, inputs: Sequence[torch.Tensor], watch: Watch | None = None
    ) -> list[torch.Tensor]:
        self._callers.append(None)  # A list counts without a lock.
        replay, back = self._take()
        try:
            return replay(inputs, watch)
        finally:
            if back is not None:
                back.append(replay)
            self._callers.pop()

    def bind(self, inputs: Sequence[torch.Tensor]) -> Bound:
        """The first replay on inputs and results that stay. Other calls queue while it runs, or
        take another."""
        return self._all[0].bind(inputs)

    def measure(self, inputs: list[torch.Tensor]) -> list[Span]:
        """A timed replay as it usually is, the median of a few, apart from all others; the model's
        state is left alone."""
        recordings = sorted(self._all[0].twin().measure(inputs), key=length)
        return recordings[len(recordings) // 2]

    def recorded(self, call: Callable[[], object]) -> Recording:
        """When each task ran in a call that nobody else disturbs."""
        return self._all[0].recorded(call)

    def rebind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Use other tensors, of the same type, as the memory of the roots named."""
        with self._lock:
            for replay in self._all:
                replay.rebind(tensors)

    def remarks(self) -> list[tuple[str, str]]:
        """What `explain()` says besides."""
        if len(self) == 1:
            return []
        return [("callers", f"{len(self)} at once, each with an arena of its own")]

    def _take(self) -> tuple[Replay, list[Replay] | None]:
        """A replay, and where it is put back if nobody else has it."""
        if len(self._callers) <= 1 or not self._most:
            try:
                return self._first.pop(), self._first
            except IndexError:
                pass  # Somebody has it.
        try:
            return self._free.pop(), self._free
        except IndexError:
            pass  # All are in use, or this is the first time that there is company.
        with self._lock:
            if len(self._all) <= self._most:
                self._all.append(self._company())
                return self._all[-1], self._free
        return random.choice(self._all[1:] or self._all), None

    def _company(self) -> Replay:
        """Another of one stream."""
        if self._narrow is None or len(self._all) > 1:
            return self._all[-1].twin()
        return self._all[0].twin(self._narrow())

    def after_fork(self) -> None:
        """In the child: threads that held a replay are gone, and no replay is under way."""
        self._lock = threading.Lock()
        self._first, self._free = self._all[:1], self._all[1:]
        self._callers = []


_pools: WeakSet[ReplayPool] = WeakSet()


def _after_fork() -> None:
    for pool in _pools:
        pool.after_fork()


os.register_at_fork(after_in_child=_after_fork)
