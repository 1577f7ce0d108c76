"""torch.compile(backend="nimble"): as any backend, with graph breaks, recompiles and gradients."""

import copy

import pytest
import torch
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_backend_is_found_by_its_entry_point():
    assert "nimble" in torch.compiler.list_backends()


def test_data_dependent_control_flow_breaks_the_graph_and_goes_on():
    def model(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    fast = torch.compile(model, backend="nimble")
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(fast(x), model(x))


def test_operators_without_a_replay_run_eagerly_between_engines():
    @torch.library.custom_op("nimble_test::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    thrice.register_fake(lambda x: torch.empty_like(x))
    fast = torch.compile(lambda x: thrice(x + 1).relu() * thrice(x), backend="nimble")
    x = torch.randn(5)
    torch.testing.assert_close(fast(x), ((x + 1) * 3).relu() * (x * 3))


def test_new_shapes_recompile():
    model = nn.Linear(4, 2)
    fast = torch.compile(model, backend="nimble")
    with torch.no_grad():
        for rows in (1, 2, 3, 7):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(fast(x), model(x))


def test_dynamic_shapes():
    fast = torch.compile(
        lambda x: x.view(-1, 2).sum(0) * x.shape[0], backend="nimble", dynamic=True
    )
    for rows in (2, 4, 6):
        x = torch.randn(rows)
        torch.testing.assert_close(fast(x), x.view(-1, 2).sum(0) * rows)


def test_mode_and_options():
    x = torch.ones(3)
    for more in ({"mode": "reduce-overhead"}, {"options": {"workers": 1}}):
        torch._dynamo.reset()
        assert torch.compile(lambda x: x + 1, backend="nimble", **more)(x).tolist() == [2, 2, 2]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="speed"):
        torch.compile(lambda x: x + 1, backend="nimble", options={"speed": 11})(x)


def test_gradients_are_right():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    other = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    other.load_state_dict(model.state_dict())
    fast = torch.compile(model, backend="nimble")
    for _ in range(2):
        x = torch.randn(5, 2, 6, 6, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        fast(x).square().sum().backward()
        other(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(model[1].running_mean, other[1].running_mean)


def test_mutated_inputs_and_aliasing_outputs():
    def model(x):
        x.mul_(2)
        return x, x[1:], x + 1

    fast = torch.compile(model, backend="nimble")
    mine, theirs = torch.arange(4.0), torch.arange(4.0)
    torch.testing.assert_close(fast(mine), model(theirs))
    torch.testing.assert_close(mine, theirs)


def test_errors_of_the_engine_are_nimbles():
    engine = nimble.compile(lambda x: x + 1, (torch.ones(2),), strict_shapes=True)
    with pytest.raises(nimble.NimbleError):
        engine(torch.ones(3))


NORMS = {
    "layer": lambda: nn.LayerNorm(8),
    "group": lambda: nn.GroupNorm(2, 8),
    "batch": lambda: nn.BatchNorm1d(8),
}


@pytest.mark.parametrize("norm", NORMS)
def test_statistics_of_mixed_precision_have_the_kernels_dtype(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), NORMS[norm]())
    other = copy.deepcopy(model)
    fast = torch.compile(model, backend="nimble")
    for _ in range(2):
        x = torch.randn(4, 8)
        with torch.autocast("cpu", torch.bfloat16):
            mine, theirs = fast(x), other(x)
        torch.testing.assert_close(mine, theirs)
        mine.float().square().mean().backward()
        theirs.float().square().mean().backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-2, rtol=1e-2)


def test_what_is_computed_from_mistyped_statistics_has_the_kernels_dtype_too():
    def model(x, weight):
        y, mean, rstd = torch.native_layer_norm(x, (8,), weight, None, 1e-5)
        return mean.t()[:, 1:], y + mean * 2, rstd

    x, weight = torch.randn(4, 8, dtype=torch.bfloat16), torch.ones(8)
    engine = nimble.compile(model, (x, weight))
    for mine, theirs in zip(engine(x, weight), model(x, weight), strict=True):
        torch.testing.assert_close(mine, theirs)
        assert mine.stride() == theirs.stride()
