"""Weights changed after compiling take effect, whichever way they are changed."""

import pytest
import torch
from torch import nn

import nimble


@pytest.fixture
def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(2, 3, 6, 6)
    return model, nimble.compile(model, (x,)), x


def agrees(model, engine, x):
    with torch.no_grad():
        torch.testing.assert_close(engine(x), model(x))


def test_edited_in_place(made):
    model, engine, x = made
    with torch.no_grad():
        model[0].weight.mul_(3)
        agrees(model, engine, x)
        model[1].running_mean.add_(1)
        agrees(model, engine, x)


def test_loaded_from_a_state_dict(made):
    model, engine, x = made
    for assign in (False, True):
        other = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).state_dict()
        model.load_state_dict(other, assign=assign)
        agrees(model, engine, x)


def test_a_parameter_replaced(made):
    model, engine, x = made
    model[0].weight = nn.Parameter(torch.randn(4, 3, 3, 3))
    agrees(model, engine, x)
    model[0].weight = nn.Parameter(torch.randn(5, 3, 3, 3))
    model[1] = nn.BatchNorm2d(5).eval()
    agrees(model, engine, x)


def test_a_submodule_replaced(made):
    model, engine, x = made
    model[2] = nn.Tanh()
    agrees(model, engine, x)


def test_an_optimizer_step(made):
    model, engine, x = made
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(x).sum().backward()
    optimizer.step()
    agrees(model, engine, x)


def test_moved_to_another_dtype(made):
    model, engine, x = made
    model.double()
    agrees(model, engine, x.double())


def test_edits_that_pytorch_does_not_count_need_refresh(made):
    model, engine, x = made
    model[0].weight.data.mul_(3)
    engine.refresh()
    agrees(model, engine, x)


def test_all_plans_of_a_ladder_follow(made):
    model, _, x = made
    engine = nimble.compile(model, (x,), shapes=[1, 2])
    with torch.no_grad():
        model[0].weight.zero_()
    for rows in (1, 2):
        agrees(model, engine, x[:rows])


def test_nothing_is_stale_under_torch_compile(made):
    model, _, x = made
    fast = torch.compile(model, backend="nimble")
    agrees(model, fast, x)
    with torch.no_grad():
        model[0].weight.mul_(3)
    agrees(model, fast, x)
    model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
    agrees(model, fast, x)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m[0].weight, "data", torch.randn(4, 3, 3, 3)),
        lambda m: m.to(memory_format=torch.channels_last),
        lambda m: m.bfloat16().float(),
        lambda m: m.append(nn.Sigmoid()),
        lambda m: m[2].register_forward_hook(lambda module, args, result: result * 2),
        lambda m: setattr(m[1], "eps", 1.0),
        lambda m: setattr(m[0], "bias", nn.Parameter(torch.randn(4))),
    ],
)
def test_whatever_else_changes_in_the_modules(made, change):
    model, engine, x = made
    engine(x)
    change(model)
    agrees(model, engine, x)
    with torch.no_grad():
        model[0].weight.add_(0.5)
    agrees(model, engine, x)


def test_parameters_tied_and_untied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    model[1].weight = model[0].weight
    agrees(model, engine, x)
    model[1].weight = nn.Parameter(torch.randn(4, 4))
    agrees(model, engine, x)


def test_a_saved_engine_has_the_weights_of_now(made, tmp_path):
    model, engine, x = made
    model[0].weight = nn.Parameter(torch.randn(4, 3, 3, 3))
    engine(x)
    model[0].weight = nn.Parameter(torch.randn(4, 3, 3, 3))
    engine.save(tmp_path / "m.nimble")
    torch.testing.assert_close(nimble.load(tmp_path / "m.nimble")(x), model(x).detach())
