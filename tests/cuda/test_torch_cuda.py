"""What of the real thing can be tried where there is no GPU: bookkeeping around PyTorch's calls."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from nimble.devices.cuda.torch_cuda import TorchCuda, _tensor_cores, described


@pytest.mark.parametrize(
    ("capability", "fp32", "half", "single"),
    [((7, 0), 15.7, 125, None), ((8, 0), 19.5, 312, 156), ((8, 6), 35.6, 71, 35.6),
     ((8, 9), 82.6, 165, 82.6), ((9, 0), 67, 989, 494), ((10, 0), 75, 2250, 1125),
     ((12, 0), 105, 210, 105)],
)  # fmt: skip
def test_tensor_cores_are_those_of_the_data_sheets(
    capability: tuple[int, int], fp32: float, half: float, single: float | None
) -> None:
    faster = _tensor_cores(capability)
    assert fp32 * faster[0] == pytest.approx(half, rel=0.02)
    assert fp32 * faster[1] == pytest.approx(single or 0, rel=0.02)


def properties(**other: object) -> SimpleNamespace:
    """A V100, as its driver describes it."""
    said = {
        "name": "Tesla V100-SXM2-16GB", "major": 7, "minor": 0, "multi_processor_count": 80,
        "clock_rate": 1_530_000, "memory_clock_rate": 877_000, "memory_bus_width": 4096,
        "total_memory": 16_900_000_000, "L2_cache_size": 6_291_456,
    }  # fmt: skip
    return SimpleNamespace(**said | other)


def test_a_gpu_is_described_by_its_driver() -> None:
    gpu = described(properties())
    assert gpu.sms == 80
    assert gpu.fp32_tflops == pytest.approx(15.7, rel=0.01)
    assert gpu.fp16_tflops == pytest.approx(125, rel=0.01)
    assert gpu.bandwidth_gbs == pytest.approx(900, rel=0.01)
    assert gpu.tf32_tflops is None


def test_clocks_that_a_driver_does_not_say_are_guessed() -> None:
    gpu = described(properties(clock_rate=0, memory_clock_rate=0))
    assert gpu.fp32_tflops == pytest.approx(15.7, rel=0.1)
    assert gpu.bandwidth_gbs == pytest.approx(900, rel=0.2)


class Graph:
    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self.began: dict[str, object] = {}

    def capture_begin(self, **how: object) -> None:
        self.began = how

    def capture_end(self) -> None:
        if self._fails:
            raise RuntimeError("CUDA error: capturing stream has unjoined work")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What PyTorch was told about pools, in order."""
    told: list[str] = []

    def tell(what: str) -> None:
        def say(*args: object) -> None:
            told.append(what if not args else f"{what} {args}")

        monkeypatch.setattr(torch._C, what, say, raising=False)

    for what in ("_cuda_endAllocateToPool", "_cuda_releasePool", "_cuda_clearCublasWorkspaces"):
        tell(what)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda place: None)
    return told


def cuda() -> TorchCuda:
    made = object.__new__(TorchCuda)
    made._index, made.place = 1, torch.device("cuda", 1)
    return made


CLOSED = ["_cuda_endAllocateToPool (1, (0, 7))", "_cuda_releasePool (1, (0, 7))"]


def test_a_capture_has_a_pool_and_workspaces_of_its_own(done: list[str]) -> None:
    graph = Graph(fails=False)
    with cuda().capture(graph, stream=None):
        assert graph.began == {"pool": (0, 7), "capture_error_mode": "thread_local"}
        done.append("captured")
    assert done == ["_cuda_clearCublasWorkspaces", "captured", "_cuda_clearCublasWorkspaces"]


def test_the_pool_of_a_capture_that_cannot_be_ended_is_closed_and_given_back(
    done: list[str],
) -> None:
    capturing = cuda().capture(Graph(fails=True), stream=None)
    with pytest.raises(RuntimeError, match="unjoined"), capturing:
        pass
    assert done[1:-1] == CLOSED


def test_the_first_error_of_a_capture_is_the_one_that_is_raised(done: list[str]) -> None:
    with pytest.raises(ValueError), cuda().capture(Graph(fails=True), stream=None):
        raise ValueError
    assert done[1:-1] == CLOSED


def test_an_error_of_the_model_s_own_leaves_the_pool_to_the_graph(done: list[str]) -> None:
    with pytest.raises(ValueError), cuda().capture(Graph(fails=False), stream=None):
        raise ValueError
    assert not set(CLOSED) & set(done)
