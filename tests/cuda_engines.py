"""Engines on the stand-in, whose arenas are poisoned wherever nothing lives."""

from __future__ import annotations

import threading
from typing import Any

import torch
from cuda_standin import StandIn

import nimble
from nimble.devices.cuda import Cuda
from nimble.devices.cuda.device import as_concurrent_as_can_be
from nimble.engine import Engine
from nimble.plan import Plan
from nimble.schedule.lifetimes import homes


def on_standin(
    model: Any, args: tuple[Any, ...], cuda: StandIn | None = None, **options: Any
) -> tuple[Engine, StandIn]:
    """An engine with every two independent tasks on different streams."""
    cuda = cuda or StandIn()
    device = Cuda(cuda, scheduler=as_concurrent_as_can_be)
    return nimble.compile(model, args, device=device, tune="off", progress=False, **options), cuda


class Poison:
    """Makes every byte of a plan's block NaN before a call, and those of a value again as soon as
    nobody will touch it any more. A task that reads too early, too late or elsewhere reads that."""

    def __init__(self, plan: Plan, cuda: StandIn) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        built = plan.schedule
        self._homes = {home.id: home for home in homes(built.graph)}
        self._at = {id: built.offsets[id] or 0 for id in self._homes}
        self._touching: dict[str, list[int]] = {}
        for home in self._homes.values():
            for task in dict.fromkeys(home.tasks):
                self._touching.setdefault(built.graph.tasks[task].name, []).append(home.id)
        self._left: dict[int, int] = {}
        self.filled = 0
        cuda.done = self._done

    def fresh(self) -> None:
        self._plan.replay.arena.block.fill_(255)
        self._left = {id: len(set(home.tasks)) for id, home in self._homes.items()}

    def _done(self, task: str) -> None:
        with self._lock:
            for id in self._touching.get(task, ()):
                self._left[id] -= 1
                home = self._homes[id]
                if not self._left[id] and not home.kept:
                    start = self._at[id]
                    self._plan.replay.arena.block[start : start + home.size].fill_(255)
                    self.filled += 1


def same_bits(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
