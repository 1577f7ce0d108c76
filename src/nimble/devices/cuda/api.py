"""What this device needs of CUDA: streams, events, graphs and memory. Small, so that tests can put
something stricter in its place; `torch_cuda.py` is the real one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias

import torch

from nimble.devices.sim import Gpu

Stream: TypeAlias = Any
Event: TypeAlias = Any
Graph: TypeAlias = Any
Backend: TypeAlias = Literal["cudnn", "depthwise", "other"]
"""What computes a convolution."""


class Api(Protocol):
    @property
    def place(self) -> torch.device:
        """Where its memory is."""

    def gpu(self) -> Gpu:
        """What it can do at most."""

    def stream(self) -> Stream:
        """A stream that is not the default one."""

    def current(self) -> Stream:
        """The caller's stream."""

    def on(self, stream: Stream) -> AbstractContextManager[None]:
        """Operators inside are launched on this stream."""

    def event(self, *, timed: bool = False) -> Event: ...
    def record(self, event: Event, stream: Stream) -> None: ...
    def wait(self, stream: Stream, event: Event) -> None: ...
    def elapsed_ns(self, start: Event, stop: Event) -> int:
        """Between two events that are timed and over."""

    def synchronize(self) -> None: ...
    def allocate(self, nbytes: int) -> torch.Tensor:
        """So many bytes, never while a stream is capturing."""

    def allocated(self) -> int:
        """Bytes that tensors and libraries hold on the GPU now."""

    def graph(self) -> Graph:
        """An empty graph, with the default generator registered."""

    def capture(self, graph: Graph, stream: Stream) -> AbstractContextManager[None]:
        """What is launched inside, on this stream and those that join it, becomes the graph. Other
        threads may go on using CUDA. After an error inside, nothing is being captured any more."""

    def replay(self, graph: Graph) -> None:
        """Launch a graph on the current stream."""

    def generator(self) -> torch.Generator: ...
    def task(self, name: str) -> AbstractContextManager[None]:
        """What is launched inside belongs to this task: profilers show it."""

    def tuned(self) -> AbstractContextManager[None]:
        """Libraries may time their algorithms inside, and remember the fastest."""

    def convolution(
        self, image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> Backend:
        """What PyTorch would compute this convolution with; `how` are the operator's other
        arguments."""
