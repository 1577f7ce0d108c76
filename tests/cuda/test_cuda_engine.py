"""What a user sees of an engine on CUDA, on the stand-in."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from cuda_engines import Poison, on_standin
from cuda_standin import StandIn
from torch import nn
from typer.testing import CliRunner

import nimble
from nimble.bench import Settings
from nimble.cli.main import app
from nimble.compare import one_thread
from nimble.devices.cuda import Cuda
from nimble.errors import ArtifactError, DeviceError, InputError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten()
    ).eval()


IMAGE = torch.randn(2, 3, 8, 8)


def test_inputs_are_copied_in_and_results_are_fresh() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    with torch.no_grad():
        first, second = engine(IMAGE), engine(IMAGE * 2)
        torch.testing.assert_close(first, model(IMAGE))
        torch.testing.assert_close(second, model(IMAGE * 2))
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    assert first.storage_offset() == 0


def test_bound_buffers_are_used_where_they_lie() -> None:
    model = network()
    engine, cuda = on_standin(model, (IMAGE,))
    x = IMAGE.clone()
    result = engine.bind(x)
    for factor in (1, 3):
        x.copy_(IMAGE * factor)
        assert engine.run() is result
        torch.testing.assert_close(result, model(IMAGE * factor).detach())
    assert cuda.replays == 2
    engine(IMAGE * 5)
    torch.testing.assert_close(result, model(IMAGE * 3).detach())


def test_plans_of_all_shapes_share_one_arena() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    small = engine.plans[0].replay
    for rows in (5, 2, 3, 5):
        x = torch.randn(rows, 3, 8, 8)
        torch.testing.assert_close(engine(x), model(x).detach())
    assert len(engine.plans) == 3
    blocks = {plan.replay.arena.block.data_ptr() for plan in engine.plans}
    assert len(blocks) == 1
    assert small.arena.block.numel() >= max(p.schedule.arena_bytes for p in engine.plans)


def test_bound_buffers_follow_an_arena_that_grows() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    result = engine.bind(IMAGE)
    engine(torch.randn(7, 3, 8, 8))
    engine.run()
    torch.testing.assert_close(result, model(IMAGE).detach())


def test_edited_weights_are_folded_again_where_they_lie() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    held = {name: tensor.data_ptr() for name, tensor in engine.plans[0].constants.items()}
    assert held, "batch norm is folded"
    with torch.no_grad():
        model[0].weight.mul_(2)
        model[1].running_mean.add_(1)
    torch.testing.assert_close(engine(IMAGE), model(IMAGE).detach())
    assert held == {n: t.data_ptr() for n, t in engine.plans[0].constants.items()}


def test_replaced_weights_are_captured_again() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    model[3].weight = nn.Parameter(torch.randn(4, 8, 1, 1))
    torch.testing.assert_close(engine(IMAGE), model(IMAGE).detach())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x.mul_(2)
        return x[0] + self.calls


def test_states_and_arguments_are_updated_where_they_lie() -> None:
    model = Counter()
    engine, _ = on_standin(model, (torch.ones(2),))
    assert model.calls == 0, "neither the warm-up nor the capture counts"
    x = torch.ones(2)
    before = model.calls._version
    assert engine(x) == 3
    assert engine(x) == 6
    assert x.tolist() == [4, 4]
    assert model.calls == 2
    assert model.calls._version > before


def test_results_that_are_views_of_arguments_stay_views() -> None:
    engine, _ = on_standin(lambda x, y: (x[1:], y.t(), x + 1), (torch.ones(3), torch.ones(2, 3)))
    x, y = torch.randn(3), torch.randn(2, 3)
    part, turned, _ = engine(x, y)
    assert part.data_ptr() == x[1:].data_ptr()
    assert turned.data_ptr() == y.data_ptr()
    assert turned.shape == (3, 2)


def test_an_argument_that_is_written_must_not_share_memory() -> None:
    engine, _ = on_standin(lambda x, y: x.add_(y), (torch.ones(3), torch.ones(3)))
    x = torch.ones(3)
    with pytest.raises(InputError, match="shares memory"):
        engine(x, x.view(3))


def test_dropout_differs_from_replay_to_replay_as_in_eager() -> None:
    model = nn.Dropout(0.5)
    engine, _ = on_standin(model, (torch.ones(64),))
    torch.manual_seed(3)
    first, second = engine(torch.ones(64)), engine(torch.ones(64))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, model(torch.ones(64)))
    assert torch.equal(second, model(torch.ones(64)))


@torch.library.custom_op("nimble_standin::host", mutates_args=())
def host(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


@host.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_plan_that_is_split_in_three_shares_one_arena_and_is_proven() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        left, right = (x + 1).exp(), (x - 1).cos()
        return host(left.relu() + right) + host(right * 2) + host(host(left)) + x.sin()

    x = torch.randn(40)
    with one_thread():
        engine, cuda = on_standin(model, (x,))
        plan = engine.plans[0]
        poison = Poison(plan, cuda)
        for cuda.seed in range(12):
            poison.fresh()
            torch.testing.assert_close(engine(x), model(x))
    said = engine.explain()
    assert "4 between captured parts" in said
    for name in ("host", "host_1", "host_2", "host_3"):
        assert f"eager         {name} between them: nimble_standin.host.default: it waits" in said
    assert 2 <= plan.replay._static.launch.launches <= 3
    assert plan.schedule.arena_bytes <= 1.02 * plan.schedule.arena_lower_bound


def test_threads_take_turns() -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    inputs = [torch.randn(2, 3, 8, 8) for _ in range(6)]
    expected = [model(x).detach() for x in inputs]
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(5):
            if not torch.allclose(engine(inputs[number]), expected[number], atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("better", ["as in eager", "channels last"])
def test_the_faster_layout_is_kept(better: str) -> None:
    model = network()
    cuda = StandIn()
    runs = 9
    times = {"as in eager": [2_000_000] * runs, "channels last": [2_000_000] * runs}
    times[better] = [1_000_000] * runs
    cuda.elapsed = [ns for each in times.values() for ns in each]
    engine = nimble.compile(model, (IMAGE,), device=Cuda(cuda), progress=False)
    assert f"images {better}" in engine.explain()
    assert engine.plans[0].measured_ns == 1_000_000
    torch.testing.assert_close(engine(IMAGE), model(IMAGE).detach(), rtol=1e-4, atol=1e-5)
    first = next(t for t in engine.plans[0].graph.tasks if "convolution" in t.op)
    laid = engine.plans[0].graph[first.writes[0]].strides
    assert (laid[1] == 1) == (better == "channels last")
    with torch.no_grad():
        model[0].weight.mul_(2)
    torch.testing.assert_close(engine(IMAGE), model(IMAGE).detach(), rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    """Four long ways from the input to the result, of kernels that leave most of a GPU idle."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.Tanh())))
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = (way(x) for way in self.ways)
        for other in others:
            first = first + other
        return first


def test_several_streams_where_the_modelled_gpu_gains_by_them() -> None:
    options = {"tune": "off", "progress": False}
    x = torch.randn(1, 64)

    def streams(model: nn.Module, **more: int) -> int:
        engine = nimble.compile(model, (x,), device=Cuda(StandIn()), **options, **more)
        torch.testing.assert_close(engine(x), model(x).detach())
        return len(engine.plans[0].schedule.streams)

    assert streams(Branches()) == 4
    assert streams(Branches(), streams=2) == 2
    assert streams(Branches(), streams=1) == 1
    assert streams(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))) == 1


def test_a_measured_timeline_has_every_task() -> None:
    engine, _ = on_standin(network(), (IMAGE,))
    bars = engine.timeline().bars
    assert {bar.name for bar in bars} == {task.name for task in engine.plans[0].graph.tasks}
    assert all(bar.stop > bar.start for bar in bars)
    assert "measured µs" in engine.explain(tasks=True)


def test_bytes_outside_of_the_arena_are_reported() -> None:
    x = torch.randn(4, 8)
    engine, _ = on_standin(nn.LayerNorm(8), (x,))
    # What layer norm gives: the result, and a mean and a deviation for each row.
    assert f"{4 * 8 * 4 + 2 * 4 * 4} B made by 1 tasks" in engine.explain()


def test_torch_compile_runs_on_the_device() -> None:
    torch._dynamo.reset()
    cuda = StandIn()
    model = network()
    fast = torch.compile(model, backend="nimble", options={"device": Cuda(cuda), "tune": "off"})
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGE), model(IMAGE))
    assert cuda.replays == 1
    x = IMAGE.clone().requires_grad_()
    fast(x).sum().backward()
    mine, x.grad = x.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(mine, x.grad)
    assert cuda.replays == 3
    torch._dynamo.reset()


def test_a_saved_engine_is_captured_again(tmp_path: Path) -> None:
    model = network()
    engine, _ = on_standin(model, (IMAGE,))
    engine.save(tmp_path / "engine")
    cuda = StandIn()
    loaded = nimble.load(tmp_path / "engine", device=Cuda(cuda))
    torch.testing.assert_close(loaded(IMAGE), model(IMAGE).detach())
    assert cuda.replays == 1
    assert "scheduled and captured again here" in loaded.explain()
    with pytest.raises(ArtifactError, match="compiled for 'cuda', and not for 'cpu'"):
        nimble.load(tmp_path / "engine", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match=r"device='cuda'.*sees no GPU.*nimble predict"):
        nimble.compile(network(), (IMAGE,), device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_bench_without_a_gpu_says_so() -> None:
    result = CliRunner().invoke(app, ["bench", "--models", "mlp", "--device", "cuda"])
    assert result.exit_code == 1
    assert "sees no GPU" in result.output
    with pytest.raises(InputError, match="only eager, compile"):
        Settings(("tvm",), (1,), device="cuda")


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(InputError, match="expected 'cpu', 'cuda'"):
        nimble.compile(network(), (IMAGE,), device="gpu")
    with pytest.raises(InputError, match="runs on 'cpu' and 'cuda'"):
        nimble.compile(network(), (IMAGE,), device="meta")
    with pytest.raises(InputError, match="streams=0"):
        nimble.compile(network(), (IMAGE,), streams=0)
