"""The real thing. Skipped where there is no GPU; `make test-gpu` runs it where there is one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import nimble
from nimble import zoo
from nimble.capture.structure import flatten
from nimble.devices.cuda import Cuda
from nimble.devices.cuda.device import as_concurrent_as_can_be

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]


@pytest.fixture(autouse=True)
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def on_gpu(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model, args = zoo.build(name)
    return model.cuda(), tuple(arg.cuda() for arg in args)


def widest() -> Cuda:
    """Every two independent tasks on different streams, whether that pays or not."""
    from nimble.devices.cuda.torch_cuda import TorchCuda

    return Cuda(TorchCuda(torch.device("cuda")), scheduler=as_concurrent_as_can_be)


@pytest.mark.parametrize("tune", ["off", "fast"])
@pytest.mark.parametrize(
    "name",
    ["resnet50@64", "googlenet@64", "nasnet_a_mobile@64", "mobilenet_v2@64", "bert_tiny", "gnn",
     "gpt2_step", "lstm@16", "unet@64", "densenet121@64"],
)  # fmt: skip
def test_networks_give_eager_s_answers(name: str, tune: str) -> None:
    model, args = on_gpu(name)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        expected = flatten(model(*args))[0]
    for device in (None, widest()):
        model.load_state_dict(before)
        engine = nimble.compile(model, args, device=device, tune=tune, progress=False)
        for _ in range(5):
            model.load_state_dict(before)
            for mine, theirs in zip(flatten(engine(*args))[0], expected, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_the_device_is_that_of_the_model() -> None:
    model, args = on_gpu("mlp")
    assert nimble.compile(model, args, progress=False).device.place.type == "cuda"


def test_training_steps_follow_eager() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    ).cuda()
    theirs = copy.deepcopy(model)
    ours, eager = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, theirs))
    x, y = torch.randn(4, 3, 8, 8).cuda(), torch.randint(0, 4, (4,)).cuda()
    step = nimble.compile_step(model, nn.functional.cross_entropy, ours, (x, y), progress=False)
    for _ in range(5):
        eager.zero_grad()
        loss = nn.functional.cross_entropy(theirs(x), y)
        loss.backward()
        eager.step()
        torch.testing.assert_close(step(x, y), loss.detach(), rtol=1e-3, atol=1e-4)
    # With the statistics of the batch norm, which warming up and measuring must leave alone.
    for name, theirs_now in theirs.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], theirs_now, rtol=1e-3, atol=1e-3)


def test_statistics_are_updated_once_a_call() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).cuda().train()
    theirs = copy.deepcopy(model)
    x = torch.randn(2, 3, 8, 8).cuda()
    with torch.no_grad():
        engine = nimble.compile(model, (x,), progress=False)
        for _ in range(3):
            torch.testing.assert_close(engine(x), theirs(x), rtol=1e-3, atol=1e-3)
    for name, theirs_now in theirs.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], theirs_now, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: type[nn.RNNBase]) -> None:
    model = kind(8, 16, 2, batch_first=True).cuda().eval()
    x = torch.randn(2, 6, 8).cuda()
    with torch.no_grad():
        engine = nimble.compile(model, (x,), progress=False)
        torch.testing.assert_close(engine(x)[0], model(x)[0], rtol=1e-3, atol=1e-4)


def test_autocast_is_part_of_a_plan() -> None:
    model = nn.Linear(16, 16).cuda()
    x = torch.randn(4, 16).cuda()
    engine = nimble.compile(model, (x,), progress=False)
    assert engine(x).dtype is torch.float32
    with torch.autocast("cuda", torch.float16):
        assert engine(x).dtype is torch.float16
    assert engine(x).dtype is torch.float32


def test_weights_that_change_are_noticed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).cuda().eval()
    x = torch.randn(1, 3, 8, 8).cuda()
    with torch.no_grad():
        engine = nimble.compile(model, (x,), progress=False)
        model[0].weight.mul_(2)
        torch.testing.assert_close(engine(x), model(x), rtol=1e-3, atol=1e-3)
        model[0].weight.data = torch.randn_like(model[0].weight)
        torch.testing.assert_close(engine(x), model(x), rtol=1e-3, atol=1e-3)


def test_dropout_differs_from_replay_to_replay() -> None:
    x = torch.ones(1024, device="cuda")
    engine = nimble.compile(nn.Dropout(0.5), (x,), progress=False)
    assert not torch.equal(engine(x), engine(x))


def test_bound_buffers_are_used_where_they_lie() -> None:
    model, args = on_gpu("mlp")
    engine = nimble.compile(model, args, progress=False)
    x = args[0].clone()
    result = engine.bind(x)
    for factor in (1.0, 3.0):
        x.copy_(args[0] * factor)
        engine.run()
        torch.testing.assert_close(result, model(args[0] * factor).detach(), rtol=1e-4, atol=1e-4)


def test_calls_on_several_streams_do_not_meet_in_the_arena() -> None:
    model, args = on_gpu("squeezenet@64")
    engine = nimble.compile(model, args, progress=False)
    streams = [torch.cuda.Stream() for _ in range(3)]
    inputs = [torch.randn_like(args[0]) for _ in streams]
    torch.cuda.synchronize()
    results = []
    for _ in range(5):
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                results.append(engine(x))
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        expected = model(inputs[number % 3]).detach()
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


@torch.library.custom_op("nimble_gpu::host", mutates_args=())
def host(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


@host.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_cannot_be_captured_splits_the_plan() -> None:
    x = torch.randn(64, device="cuda")
    engine = nimble.compile(lambda x: host(x + 1).relu(), (x,), progress=False)
    assert "between them: nimble_gpu.host" in engine.explain()
    for scale in (1.0, 2.0):
        torch.testing.assert_close(engine(x * scale), host(x * scale + 1).relu())


def test_other_plans_can_be_captured_after_one_that_could_not() -> None:
    x = torch.randn(64, device="cuda")
    nimble.compile(lambda x: host(x), (x,), progress=False)
    engine = nimble.compile(lambda x: x.exp(), (x,), progress=False)
    torch.testing.assert_close(engine(x), x.exp())


def test_torch_compile() -> None:
    model, args = on_gpu("mlp")
    with torch.no_grad():
        fast = torch.compile(model, backend="nimble")
        torch.testing.assert_close(fast(*args), model(*args), rtol=1e-4, atol=1e-4)


def test_a_timeline() -> None:
    model, args = on_gpu("mlp")
    engine = nimble.compile(model, args, progress=False)
    assert len(engine.timeline().bars) == len(engine.plans[0].graph.tasks)
