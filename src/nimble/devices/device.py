"""What the pipeline asks of a device: a graph in, something that replays it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from nimble._aten import Watch
from nimble.capture.dtypes import TO_TORCH
from nimble.clock import Clock
from nimble.devices.constants import Constants
from nimble.errors import UnfitError
from nimble.graph import Graph, Value
from nimble.rewrite import Step
from nimble.schedule import Schedule
from nimble.settings import Settings

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Span:
    """When a task ran: nanoseconds since the start of the replay, and on which thread."""

    task: int
    thread: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A replay in which every task was timed."""

    spans: list[Span]
    lasted_ns: int
    """From its beginning, before any task, to its end."""


def length(spans: Sequence[Span]) -> int:
    """Nanoseconds from the start of the first task to the end of the last."""
    return max((s.stop for s in spans), default=0) - min((s.start for s in spans), default=0)


class Bound(Protocol):
    """A replay on inputs and results that stay."""

    @property
    def outputs(self) -> list[torch.Tensor]:
        """Written by every run."""

    def run(self, watch: Watch | None = None) -> None:
        """Raises `_aten.Changed` where the watch has noticed something; the outputs are then of no
        use."""


class Replayed(Protocol):
    """A proven schedule bound to memory. Called with the graph's inputs in order, by any thread;
    `_aten.Mismatch` where they do not fit."""

    native: bool
    """Whether the device has kernels of its own, so that PyTorch's are a fallback."""

    @property
    def schedule(self) -> Schedule: ...
    @property
    def kinds(self) -> Mapping[str, str]:
        """Task name → how it runs: `native`, `out`, `copy`, `inplace` or `eager`."""

    def __len__(self) -> int:
        """How many calls may run at once."""

    def __call__(
        self, inputs: Sequence[torch.Tensor], watch: Watch | None = None
    ) -> list[torch.Tensor]:
        """Raises `_aten.Changed` where the watch has noticed something; then nothing has happened
        that anybody could notice."""

    def bind(self, inputs: Sequence[torch.Tensor]) -> Bound: ...
    def measure(self, inputs: list[torch.Tensor]) -> list[Span]:
        """A timed replay; the model's state is left alone."""

    def recorded(self, call: Callable[[], object]) -> Recording:
        """When each task ran in a call."""

    def rebind(self, tensors: Tensors) -> None:
        """Use other tensors, of the same type, as the memory of the roots named; UnfitError if
        they are of another."""

    def remarks(self) -> list[tuple[str, str]]:
        """What else `explain()` should say of it: a word, and a line."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a device made of a graph."""

    lowered: Graph
    """For this device, not yet cut."""
    graph: Graph
    """What is replayed."""
    steps: tuple[Step, ...]
    replay: Replayed
    constants: dict[str, torch.Tensor]
    choice: str
    """Why this many streams are used."""
    measured_ns: int | None = None
    sides: dict[str, int] = field(default_factory=dict)
    """Convolutions by Winograd's algorithm: task → side of a tile."""
    cut: str = "whole"
    lean: int = 0


class Device(Protocol):
    """Turns graphs into replays. One object serves all plans of an engine."""

    @property
    def kind(self) -> str:
        """What a user calls it: "cpu" or "cuda"."""

    @property
    def place(self) -> torch.device:
        """Where the tensors of a model on this device are."""

    @property
    def runs_python(self) -> bool:
        """Whether operators that are written in Python can be part of a plan."""

    @property
    def fuses(self) -> bool:
        """Whether chains of pointwise operators become one kernel, so that gradients are best
        traced as arithmetic."""

    def constants(self) -> Constants: ...
    def prepare(
        self,
        graph: Graph,
        tensors: Tensors,
        constants: Constants,
        example: list[torch.Tensor],
        settings: Settings,
        clock: Clock,
    ) -> Prepared:
        """Lower, schedule, prove and bind a rewritten graph."""

    def describe(self, settings: Settings) -> str:
        """In a word or two: what its replays run on."""


def fitting(root: Value, tensors: Tensors) -> torch.Tensor:
    """The tensor that is to be a root's memory; UnfitError if it is of another type."""
    tensor = tensors[root.name]
    mine = (TO_TORCH[root.dtype], root.shape, root.strides)
    theirs = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
    if mine != theirs:
        raise UnfitError(
            f"{root.role} {root.name!r} was captured as {root.type} and is now a {tensor.dtype} "
            f"tensor of shape {theirs[1]} and strides {theirs[2]}"
        )
    return tensor
