"""What a schedule asks of a device: how long a task takes, and what a wait costs."""

from __future__ import annotations

from typing import Protocol

from nimble.graph.ir import Graph, Task


class Costs(Protocol):
    """Nanoseconds. The device measures them, or a model of a device predicts them."""

    @property
    def wait(self) -> int:
        """From the end of a task to the start of one on another stream that waits for it."""

    @property
    def byte(self) -> float:
        """What a task takes longer for each byte it reads that another stream has written."""

    def task(self, graph: Graph, task: Task) -> int:
        """From the start of a task to its end, alone on its stream."""


class RecordedCosts:
    """The costs written in the tasks themselves (`Task.cost`), and fixed prices for a wait and for
    a byte that is moved."""

    def __init__(self, wait: int = 1_000, unknown: int = 1_000, byte: float = 0.0) -> None:
        self.wait = wait
        self.byte = byte
        self._unknown = unknown

    def task(self, graph: Graph, task: Task) -> int:
        return task.cost or self._unknown
