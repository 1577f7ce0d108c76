"""Weights changed after compiling take effect, whichever way they are changed."""

import copy
import functools

import pytest
import torch
from torch import nn

import nimble
from nimble.devices import Constants
from nimble.errors import InputError


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


def called_twice():
    norm = nn.BatchNorm1d(4)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), norm, nn.ReLU(), norm)


def gone_by_two_names():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


@pytest.mark.parametrize("make", [called_twice, gone_by_two_names])
@pytest.mark.parametrize("training", [False, True])
def test_a_submodule_that_is_there_twice(make, training):
    """It is left as it was, and edits reach both of its uses."""
    torch.manual_seed(0)
    model, x = make().train(training), torch.randn(6, 4)
    twin = copy.deepcopy(model)
    engine = nimble.compile(model, (x,))
    assert all(type(p) is nn.Parameter for p in model.parameters())
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(engine(x), twin(x))
            for each in (*model.parameters(), *twin.parameters()):
                each.mul_(1.5)
    torch.testing.assert_close(model.state_dict(), twin.state_dict())


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
    model[0] = nn.Conv2d(3, 4, 3, bias=False)
    agrees(model, engine, x)


def test_edited_where_calls_have_effects():
    torch.manual_seed(0)
    net = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)]
    model, x = nn.Sequential(*net).train(), torch.randn(2, 3, 6, 6)
    other = copy.deepcopy(model)
    engine = nimble.compile(model, (x,))
    for factor in (2, 3):
        with torch.no_grad():
            model[0].weight.mul_(factor)
            other[0].weight.mul_(factor)
            torch.manual_seed(1)
            expected = [other(x), other(x)]
            torch.manual_seed(1)
            torch.testing.assert_close([engine(x), engine(x)], expected)
            torch.testing.assert_close(model.state_dict(), other.state_dict())


class Tampered:
    """Edits a model while an engine makes something of its weights."""

    def __init__(self, monkeypatch, edit):
        self.edits, self._edit, self._compute = 0, edit, Constants._of
        monkeypatch.setattr(Constants, "_of", self._of_with_edit())

    def _of_with_edit(self):
        def of(constants, prologue, tensors, refresh):
            made = self._compute(constants, prologue, tensors, refresh)
            if not self.edits:
                self.edits += 1
                self._edit()
            return made

        return of


def write(model):
    with torch.no_grad():
        model[0].weight.mul_(2)


def swap(model):
    model[0].weight.data = model[0].weight.data * 2


def replace(model):
    model[0].weight = nn.Parameter(model[0].weight.detach() * 2)


def replace_module(model):
    model[2] = nn.Tanh()


@pytest.mark.parametrize("first", [write, replace])
@pytest.mark.parametrize("second", [write, swap, replace])
def test_edited_while_an_earlier_edit_is_taken_over(made, monkeypatch, first, second):
    model, engine, x = made
    first(model)
    tampered = Tampered(monkeypatch, lambda: second(model))
    engine(x)
    assert tampered.edits
    agrees(model, engine, x)


@pytest.mark.parametrize("edit", [write, replace_module])
def test_edited_while_another_plan_is_made(made, monkeypatch, edit):
    model, engine, x = made
    tampered = Tampered(monkeypatch, lambda: edit(model))
    other = torch.randn(3, 3, 6, 6)
    engine(other)
    assert tampered.edits
    agrees(model, engine, other)
    agrees(model, engine, x)


def test_a_module_replaced_while_a_plan_is_bound(made, monkeypatch):
    model, engine, _ = made
    Tampered(monkeypatch, lambda: replace_module(model))
    other = torch.randn(3, 3, 6, 6)
    with pytest.raises(InputError, match="bind again"):
        engine.bind(other)
    results = engine.bind(other)
    engine.run()
    torch.testing.assert_close(results, model(other).detach())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_of_a_fused_optimizer(made, optimizer):
    model, engine, x = made
    step = optimizer(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        model(x).square().sum().backward()
        step.step()
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


class Config:
    def __init__(self, k):
        self.k = k


class Uses(nn.Module):
    """A module that computes with something in its attribute `c`."""

    def __init__(self, use, c):
        super().__init__()
        self.use, self.c = use, c

    def forward(self, x):
        return self.use(self.c, x)


def first(c, x):
    return x * c[0]


def named(c, x):
    return x * c["k"]


def attribute(c, x):
    return x * c.k


def put(value, key):
    def change(m):
        m.c[key] = value

    return change


@pytest.mark.parametrize(
    ("use", "old", "change"),
    [
        (lambda c, x: c(x), torch.relu, lambda m: setattr(m, "c", torch.sigmoid)),
        (lambda c, x: x.to(c), torch.float32, lambda m: setattr(m, "c", torch.float64)),
        (first, (1.0,), lambda m: setattr(m, "c", (5.0,))),
        (first, [1.0], lambda m: setattr(m, "c", [5.0])),
        (named, {"k": 1.0}, lambda m: setattr(m, "c", {"k": 5.0})),
        (attribute, Config(1.0), lambda m: setattr(m, "c", Config(5.0))),
        (first, [1.0], put(5.0, 0)),
        (first, [1], put(1.0, 0)),
        (first, {0: 1.0, 1: 2.0}, put(5.0, 0)),
        (first, ([1.0],), lambda m: m.c[0].append(2.0)),
        (named, {"k": 1.0}, put(5.0, "k")),
        (attribute, Config(1.0), lambda m: setattr(m.c, "k", 5.0)),
        (lambda c, x: x * c.k[0]["a"], Config([{"a": 1.0}]), lambda m: m.c.k[0].update(a=5.0)),
        (lambda c, x: x * len(c), {"a"}, lambda m: m.c.add("b")),
        (lambda c, x: x.long() * c, 2, lambda m: setattr(m, "c", 2.0)),
        (lambda c, x: x.long() * c, True, lambda m: setattr(m, "c", 1)),
        (lambda c, x: x / c, 0.0, lambda m: setattr(m, "c", -0.0)),
        (lambda c, x: x * c, 2, lambda m: setattr(m, "use", lambda c, x: x + c)),
        (lambda c, x: x * c, 2, lambda m: setattr(m, "forward", lambda x: x + 7)),
    ],
)
def test_whatever_else_changes_in_attributes(use, old, change):
    if isinstance(old, tuple) and isinstance(old[0], list):
        use = lambda c, x: x * sum(c[0])  # noqa: E731
    model, x = Uses(use, old), torch.rand(3) + 1
    engine = nimble.compile(model, (x,))
    for _ in range(2):
        agrees(model, engine, x)
    change(model)
    for _ in range(2):
        agrees(model, engine, x)
    assert len(engine.plans) == 1


def test_hooks_of_all_modules_and_hooks_exchanged():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    engine = nimble.compile(model, (x,))
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, args, result: result * 3)
    try:
        agrees(model, engine, x)
    finally:
        everywhere.remove()
    agrees(model, engine, x)
    hook = model.register_forward_hook(lambda m, args, result: result * 2)
    agrees(model, engine, x)
    hook.remove()
    model.register_forward_hook(lambda m, args, result: result * 5)
    agrees(model, engine, x)


def network():
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()


class Object:
    def __init__(self):
        self.parts = {"net": network()}

    def __call__(self, x):
        return self.run(x)

    def run(self, x):
        return self.parts["net"](x)


net, scale = network(), 2.0


def deepest(x, depth=3):
    return deepest(x, depth - 1) if depth else net(x) * scale


def helper(x):
    return deepest(x)


def outer(x):
    return helper(x)


def in_closures():
    inner = network()

    def one(x):
        return inner(x)

    return (lambda x: one(x)), inner


@pytest.mark.parametrize("kind", ["object", "method", "helper", "closure", "partial"])
def test_modules_that_a_function_reaches_by_a_long_way(kind):
    thing = Object()
    function, inner = {
        "object": (thing, thing.parts["net"]),
        "method": (thing.run, thing.parts["net"]),
        "helper": (outer, net),
        "closure": in_closures(),
        "partial": (functools.partial(outer), net),
    }[kind]
    x = torch.randn(4, 3)
    engine = nimble.compile(function, (x,))
    agrees(function, engine, x)
    inner[0].weight = nn.Parameter(torch.randn(3, 3))
    agrees(function, engine, x)
    inner.load_state_dict(network().state_dict())
    agrees(function, engine, x)
    inner.train()
    seen = inner[1].num_batches_tracked.item()
    agrees(function, engine, x)
    assert inner[1].num_batches_tracked.item() == seen + 2, "eager once, and the engine once"
    inner.eval()
    agrees(function, engine, x)


def test_modules_and_globals_that_a_function_finds_elsewhere_now(monkeypatch):
    thing, x = Object(), torch.randn(4, 3)
    engine = nimble.compile(thing, (x,))
    thing.parts["net"] = network()
    agrees(thing, engine, x)
    thing.parts = {"net": network()}
    agrees(thing, engine, x)
    engine = nimble.compile(outer, (x,))
    for name, value in (("scale", 3.0), ("net", network()), ("helper", lambda x: x + 1)):
        monkeypatch.setitem(globals(), name, value)
        agrees(outer, engine, x)
    number = 2.0

    def function(x):
        return x * number

    engine = nimble.compile(function, (x,))
    number = 3.0
    agrees(function, engine, x)


def test_weights_that_move_are_read_where_they_are():
    """Their storage stays the same, and its bytes move into shared memory."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(300, 32)
            self.last = nn.Linear(32, 8)

        def forward(self, tokens):
            return self.last(self.table(tokens)) @ self.last(self.table.weight).t()

    model, tokens = Tied(), torch.tensor([[1, 2, 299]])
    with torch.no_grad():
        engine = nimble.compile(model, (tokens,))
        torch.testing.assert_close(engine(tokens), model(tokens))
        model.share_memory()
        other = [torch.full((300, 32), 7.0) for _ in range(50)]  # where the weights were
        torch.testing.assert_close(engine(tokens), model(tokens))
        model.table.weight.mul_(2)
        torch.testing.assert_close(engine(tokens), model(tokens))
        assert len(other) == 50


def test_constants_are_the_same_bits_when_computed_one_by_one(monkeypatch):
    def engine():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)
        )
        return model.eval(), nimble.compile(model, (x,), tune="off")

    x = torch.randn(1, 3, 5, 5)
    _, whole = engine()
    monkeypatch.setattr("nimble.devices.constants._PORTION", 1)
    model, parts = engine()
    assert len(parts.plans[0].constants) > 2
    assert torch.equal(parts(x), whole(x))
    with torch.no_grad():
        model[4].weight.mul_(2)
        torch.testing.assert_close(parts(x), model(x))
