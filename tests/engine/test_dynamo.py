"""torch.compile(backend="nimble"): as any backend, with graph breaks, recompiles and gradients."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import nimble
from nimble.compare import relative_error
from nimble.errors import InputError


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


def test_a_graph_is_walked_back_twice():
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 4))
    compiled = torch.compile(model, backend="nimble")
    x, other = (torch.randn(8, 6, requires_grad=True) for _ in range(2))
    other.data.copy_(x.data)
    (compiled(x).sum() + compiled(x * 2).sum()).backward()
    x.grad = None
    for run, of in ((compiled, x), (model, other)):
        loss = run(of).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    torch.testing.assert_close(x.grad, other.grad)


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
        assert mine.dtype is theirs.dtype
        # Eager rounds what the layer hands to the norm: both are held against double precision.
        exact = [copy.deepcopy(other).double()(x.double()).detach()]
        errors = [relative_error([result.detach()], exact) for result in (mine, theirs)]
        assert errors[0] <= max(4 * errors[1], 2**-8)
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
        torch.testing.assert_close(mine, theirs, atol=1e-2, rtol=1.6e-2)  # Eager rounds y.
        assert mine.stride() == theirs.stride()


def _grow(x, y):
    x.add_(1)
    return y * 2


def _shared(start, stop):
    base = torch.randn(12)
    return base[1:7], base[start:stop]


def _branch(x):
    return torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos(), (x * 2,)) * 3


def _nearer(score, batch, head, i, j):
    return score + i - j


def _attend(q):
    return flex_attention(q + 1, q, q, score_mod=_nearer) * 2


def _dropped_and_inverted(x):
    y = F.dropout(x), torch.linalg.inv(x), F.dropout(x * 2)
    x.add_(1)
    return y


EAGER_PARTS = {
    "inputs that share memory": (_grow, lambda: _shared(1, 7)),
    "inputs that overlap": (_grow, lambda: _shared(4, 10)),
    "effects": (lambda x: torch.linalg.inv(x * 2).relu(), lambda: (torch.randn(3, 3),)),
    "effects and random numbers": (_dropped_and_inverted, lambda: (torch.randn(3, 3),)),
    "branches": (_branch, lambda: (torch.randn(3),)),
    "flex attention": (_attend, lambda: (torch.randn(1, 2, 16, 16),)),
    "float8": (lambda x: (x * 2).to(torch.float8_e4m3fn).float(), lambda: (torch.randn(3),)),
    "float8 passed through": (
        lambda x, y: (x, x.float() + y),
        lambda: (torch.randn(3).to(torch.float8_e5m2), torch.randn(3)),
    ),
    "complex32": (
        lambda x: (x.clone(), x.to(torch.complex64) + 1),
        lambda: (torch.randn(3, dtype=torch.complex64).to(torch.complex32),),
    ),
    "a place in a storage": (
        lambda x: x.as_strided((2, 2), (1, 1), 2) * 2,
        lambda: (torch.randn(8)[1:],),
    ),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support", "ignore:flex_attention called")
@pytest.mark.parametrize("case", EAGER_PARTS)
def test_whatever_no_engine_can_replay_runs_eagerly_between_engines(case, noted):
    model, make = EAGER_PARTS[case]
    fast = torch.compile(model, backend="nimble")
    for seed in range(2):
        found = []
        for run in (fast, model):
            torch.manual_seed(seed)
            given = make()
            found.append((run(*given), given, torch.rand(1)))
        torch.testing.assert_close(*found)
    assert not noted  # It was split as it should be; nothing failed.


def test_sizes_cross_the_parts():
    def model(x):
        return torch.linalg.inv(x * 2)[: x.shape[0] - 1].relu() * x.shape[0]

    fast = torch.compile(model, backend="nimble", dynamic=True)
    for size in (3, 4, 5):
        x = torch.randn(size, size)
        torch.testing.assert_close(fast(x), model(x))


def test_checkpoints_draw_the_same_numbers_again():
    def model(x, weight):
        return checkpoint(lambda y: F.dropout(y @ weight).relu(), x, use_reentrant=False)

    fast = torch.compile(model, backend="nimble")
    x, weight = torch.rand(3, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    y = fast(x, weight)
    y.sum().backward()
    kept = (y > 0).float() * 2  # All are positive, so what is zero was dropped.
    torch.testing.assert_close(x.grad, kept @ weight.detach().T)


@pytest.fixture
def noted():
    """What Nimble logs as warnings."""
    found = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())
    logging.getLogger("nimble").addHandler(handler)
    yield found
    logging.getLogger("nimble").removeHandler(handler)


def test_a_part_that_cannot_be_captured_runs_eagerly_and_says_so_once(monkeypatch, noted):
    monkeypatch.setattr(nimble.dynamo, "why_refused", lambda op, place: None)

    @torch.library.custom_op("nimble_test::fourfold", mutates_args=())
    def fourfold(x: torch.Tensor) -> torch.Tensor:
        return x * 4

    fourfold.register_fake(lambda x: torch.empty_like(x))
    fast = torch.compile(lambda x: fourfold(x + 1), backend="nimble")
    for _ in range(3):
        assert fast(torch.ones(2)).tolist() == [8, 8]
    (line,) = noted
    assert "implemented in Python" in line
    assert "Use torch.compile" not in line


def test_a_limit_of_memory_is_kept_rather_than_run_eagerly():
    fast = torch.compile(
        lambda x: (x + 1).exp().sum(), backend="nimble", options={"memory_limit": 8}
    )
    with pytest.raises(nimble.NimbleError, match="8"):
        fast(torch.ones(1000))


@pytest.mark.parametrize("backend", ["eager", "nimble"])
def test_an_engine_inside_of_a_compiled_function_breaks_the_graph(backend):
    model = nn.Linear(4, 4).requires_grad_(False)
    engine = nimble.compile(model, (torch.randn(2, 4),))
    fast = torch.compile(lambda x: engine(x * 2) + 1, backend=backend)
    for rows in (2, 3):  # One plan is there, the other is made inside.
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), model(x * 2) + 1)
    torch.testing.assert_close(torch.compile(engine, backend=backend)(x), model(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_whoever_looks_at_operators_is_told_that_a_replay_has_none():
    x = torch.randn(2, 4)
    engine = nimble.compile(nn.Linear(4, 4), (x,))
    for mode in ("real", "fake", "symbolic"):
        with pytest.raises(InputError, match="cannot be traced"):
            make_fx(engine, tracing_mode=mode)(x)
    for transform in (torch.func.vmap, torch.func.grad):
        with pytest.raises(InputError, match="function transform"):
            transform(lambda y: engine(y).sum())(x)
    with forward_ad.dual_level():
        with pytest.raises(InputError, match="forward-mode"):
            engine(forward_ad.make_dual(x, torch.ones_like(x)))
        engine(x)  # No derivative is lost here.
    with FlopCounterMode(display=False):
        engine(x)
