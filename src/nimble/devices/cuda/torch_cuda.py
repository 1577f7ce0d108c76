"""CUDA as PyTorch gives it. Nothing else of Nimble touches torch.cuda; a test enforces it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch

from nimble.devices.cuda.api import Backend, Event, Graph, Stream
from nimble.devices.sim import Gpu
from nimble.errors import DeviceError

_failed: list[Graph] = []
"""Captures that could not be ended. The pool of pinned memory goes on asking them, and there is no
way to tell it not to."""
_BACKENDS: dict[str, Backend] = {"Cudnn": "cudnn", "CudaDepthwise2d": "depthwise"}


def _tensor_cores(capability: tuple[int, int]) -> tuple[float, float]:
    """How many times as fast as plain float32 they are on float16, and on float32 as TF32 (0: not).

    Data sheets: V100 125 of 15.7, T4 65 of 8.1, A100 312 and 156 of 19.5, RTX 3090 71 and 35.6 of
    35.6, RTX 4090 165 and 82.6 of 82.6, H100 989 and 494 of 67, B200 2250 and 1125 of 75, RTX 5090
    210 and 105 of 105.
    """
    if capability < (7, 0):
        return 1, 0
    if capability < (8, 0):
        return 8, 0
    if capability == (8, 0):
        return 16, 8
    if capability[0] in (8, 12):
        return 2, 1
    if capability[0] == 9:
        return 14.8, 7.4
    return 30, 15


def _cores(capability: tuple[int, int]) -> int:
    """For float32, in one multiprocessor."""
    return 64 if capability in ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)) else 128


def described(found: Any) -> Gpu:
    """A GPU from what the driver says of it, and how much faster tensor cores of its kind are."""
    capability = (found.major, found.minor)
    half, single = _tensor_cores(capability)
    # Drivers do not say every clock: then 1.5 GHz, and 50 bytes for every 1,000 operations, which
    # is what most GPUs have.
    khz = found.clock_rate or 1_500_000
    fp32 = found.multi_processor_count * _cores(capability) * 2 * khz * 1e3 / 1e12
    # Two transfers a clock, of as many bits as the bus is wide.
    bandwidth = found.memory_clock_rate * 1e3 * 2 * found.memory_bus_width / 8 / 1e9
    return Gpu(
        name=found.name,
        source=f"the driver, for compute capability {found.major}.{found.minor}",
        sms=found.multi_processor_count,
        fp32_tflops=fp32,
        fp16_tflops=fp32 * half,
        bandwidth_gbs=bandwidth or fp32 * 50,
        memory_gb=found.total_memory / 1e9,
        l2_mb=found.L2_cache_size / 1e6,
        tf32_tflops=fp32 * single if single else None,
    )


class TorchCuda:
    def __init__(self, place: torch.device) -> None:
        if not torch.cuda.is_available():
            raise DeviceError(
                f"device={str(place)!r}: PyTorch {torch.__version__} sees no GPU here. Install a "
                "build of PyTorch for CUDA on a machine that has one, or compile for the CPU; "
                "`nimble predict` tells what a GPU would give"
            )
        count = torch.cuda.device_count()
        index = torch.cuda.current_device() if place.index is None else place.index
        if not 0 <= index < count:
            raise DeviceError(f"device={str(place)!r}: there are {count} GPUs here, from 0 up")
        self._index = index
        self.place = torch.device("cuda", index)

    def gpu(self) -> Gpu:
        return described(torch.cuda.get_device_properties(self.place))

    def stream(self) -> Stream:
        return torch.cuda.Stream(self.place)  # type: ignore[no-untyped-call]

    def current(self) -> Stream:
        return torch.cuda.current_stream(self.place)

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        with torch.cuda.stream(stream):
            yield

    def event(self, *, timed: bool = False) -> Event:
        return torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]

    def record(self, event: Event, stream: Stream) -> None:
        event.record(stream)

    def wait(self, stream: Stream, event: Event) -> None:
        stream.wait_event(event)

    def elapsed_ns(self, start: Event, stop: Event) -> int:
        return int(start.elapsed_time(stop) * 1e6)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.place)

    def allocate(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.place)

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.place)

    def graph(self) -> Graph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator())
        return graph

    @contextlib.contextmanager
    def capture(self, graph: Graph, stream: Stream) -> Iterator[None]:
        # Not torch.cuda.graph, which leaves its stream the current one after an error.
        self.synchronize()
        gc.collect()  # A graph or an event that is found unreachable later would end the capture.
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(stream), self._own_workspaces():
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                yield
            except BaseException:
                # The capture is void, and says so again; the first error is the one to raise.
                with contextlib.suppress(RuntimeError):
                    self._end(graph, pool)
                raise
            self._end(graph, pool)

    def _end(self, graph: Graph, pool: Any) -> None:
        """PyTorch leaves the pool of a capture that cannot be ended open: it would ask this graph
        about every allocation to come, and never give the memory back."""
        try:
            graph.capture_end()
        except RuntimeError:
            _failed.append(graph)
            with contextlib.suppress(RuntimeError):  # Where it was closed before the error.
                torch._C._cuda_endAllocateToPool(self._index, pool)
                torch._C._cuda_releasePool(self._index, pool)
            raise

    @contextlib.contextmanager
    def _own_workspaces(self) -> Iterator[None]:
        """PyTorch keeps cuBLAS's workspaces by stream, and drops those of a graph's stream with the
        graph (pytorch#193402). Other graphs of the stream must not have theirs there: what is made
        inside lies in the pool of this graph, and is nobody else's."""
        torch._C._cuda_clearCublasWorkspaces()
        try:
            yield
        finally:
            torch._C._cuda_clearCublasWorkspaces()

    def replay(self, graph: Graph) -> None:
        graph.replay()

    def generator(self) -> torch.Generator:
        return torch.cuda.default_generators[self._index]

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        with torch.cuda.nvtx.range(name):
            yield

    @contextlib.contextmanager
    def tuned(self) -> Iterator[None]:
        cudnn = torch.backends.cudnn
        before = cudnn.benchmark
        cudnn.benchmark = True
        try:
            yield
        finally:
            cudnn.benchmark = before

    def convolution(
        self, image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> Backend:
        chosen = torch._C._select_conv_backend(image, weight, bias, *how)
        return _BACKENDS.get(chosen.name, "other")
