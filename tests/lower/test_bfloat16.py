"""Networks in bfloat16: computed in float32, rounded where the model says so."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import fell_back, graphs
from torch import nn

import nimble
from nimble import _core
from nimble.capture.structure import flatten
from nimble.compare import Outcome, Reference, relative_error
from nimble.graph import DType

NARROW = torch.bfloat16
couples = pytest.mark.skipif(
    not _core.multiplies_bfloat16(), reason="this machine has no multiplication in bfloat16"
)


def agrees(model, *args):
    """The engine with the model's answers, no further from the exact ones than eager's allow."""
    model = model.eval() if isinstance(model, nn.Module) else model
    tensors, structure = flatten((args, {}))
    reference = Reference.of(model, tensors, structure)
    engine = nimble.compile(model, tuple(tensor.clone() for tensor in tensors))
    assert reference.differs(Outcome.of(engine, model, tensors, structure)) == ""
    return engine


def products(graph):
    """Of which dtype the tasks that multiply by weights read."""
    kinds = ("nimble.convolution", "nimble.linear")
    return [graph[t.args[0].id].dtype for t in graph.tasks if t.op in kinds]


class Block(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1)
        self.third = nn.Conv2d(channels, channels, 3, stride=2)
        self.out = nn.Linear(channels, 80)

    def forward(self, x):
        x = F.silu(self.norm(self.first(x)))
        x = self.third(x + self.second(x))
        return self.out(x.mean((2, 3)))


def test_a_network_runs_by_our_kernels():
    model, x = Block().to(NARROW).eval(), torch.randn(2, 3, 12, 12, dtype=NARROW)
    agrees(model, x)
    _, lowered, tiled, *_ = graphs(model, (x,))
    assert fell_back(lowered) == []
    assert len(tiled.tasks) > len(lowered.tasks)


@couples
def test_weights_lie_in_couples():
    """Where there are two input channels to multiply, and enough results of them."""
    _, lowered, *_ = graphs(Block().to(NARROW).eval(), (torch.randn(1, 3, 12, 12, dtype=NARROW),))
    assert products(lowered) == [DType.FLOAT32] + [DType.BFLOAT16] * 3
    _, lowered, *_ = graphs(Block().eval(), (torch.randn(1, 3, 12, 12),))
    assert products(lowered) == [DType.FLOAT32] * 4


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    inside=st.sampled_from([1, 2, 7, 64, 96]),
    out=st.sampled_from([1, 63, 64, 80, 130]),
    activation=st.sampled_from([None, "relu", "gelu", "sigmoid"]),
    bias=st.booleans(),
)
def test_linear_layers(rows, inside, out, activation, bias):
    layer = nn.Linear(inside, out, bias=bias).to(NARROW)

    def model(x):
        return x if activation is None else getattr(F, activation)(x)

    agrees(nn.Sequential(layer, Called(model)), torch.randn(rows, inside).to(NARROW))


STEPS = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": torch.sub,
    "maximum": torch.maximum,
    "tanh": lambda x, _: torch.tanh(x),
    "sigmoid": lambda x, _: torch.sigmoid(x),
    "softmax": lambda x, _: torch.softmax(x, -1),
    "product": lambda x, y: x @ y.t() / 4,
    "turned": lambda x, _: x.t(),
    "row": lambda x, y: x + y[:1],
    "joined": lambda x, y: torch.cat([x, y])[1:17],
    "mean": lambda x, y: x - y.mean(0),
    "rounded": lambda x, _: x if x.dtype is torch.float64 else x.float().to(NARROW),
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([1, 2]),
)
def test_programs(steps, workers):
    """As near to what double precision gives as four times eager's error, or two roundings."""

    def model(*inputs):
        pool = list(inputs)
        for name, a, b in steps:
            pool.append(STEPS[name](pool[a % len(pool)], pool[b % len(pool)]))
        return pool[2:]

    x = [torch.randn(16, 16).to(NARROW) for _ in range(2)]
    exact = model(*(t.double() for t in x))
    for got, eager, wanted in zip(
        nimble.compile(model, tuple(x), workers=workers)(*x), model(*x), exact, strict=True
    ):
        assert (got.dtype, got.stride()) == (eager.dtype, eager.stride())
        own = relative_error([eager], [wanted])
        assert relative_error([got], [wanted]) <= max(4 * own, 2**-7)


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_transformers():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu").to(NARROW)
    agrees(layer, torch.randn(2, 9, 64).to(NARROW))


def test_recurrent_layers():
    agrees(nn.LSTM(32, 64, batch_first=True).to(NARROW), torch.randn(1, 5, 32).to(NARROW))


def test_autocast():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Block()

        def forward(self, x):
            with torch.autocast("cpu", NARROW):
                return self.inner(x)

    model, x = Mixed().eval(), torch.randn(1, 3, 12, 12)
    eager, engine = model(x), nimble.compile(model, x)
    assert engine(x).dtype is eager.dtype
    torch.testing.assert_close(engine(x), eager, rtol=0.05, atol=0.05)
    if _core.multiplies_bfloat16():
        assert DType.BFLOAT16 in products(graphs(model, (x,))[1])


def test_what_the_model_rounds_is_rounded():
    """Bit for bit: the rest of a float beyond its bfloat16 is not lost."""

    def rest(x):
        return x - x.to(NARROW).float(), (x * 3).to(NARROW).float() * 2

    x = torch.randn(100)
    for got, expected in zip(nimble.compile(rest, x)(x), rest(x), strict=True):
        assert torch.equal(got, expected)


def test_views_and_outputs_in_another_layout():
    def model(x):
        y = torch.relu(x + 1)
        return y[1:].t(), y.view(-1)[3:], torch.cat([y, x], 1)[:, ::2]

    agrees(model, torch.randn(6, 5).to(NARROW))


def test_bits_are_left_alone():
    def model(x):
        return (x + 1).view(torch.int16) & 0xFF, (x * 2).view(torch.int16)

    x = torch.randn(40).to(NARROW)
    for got, expected in zip(nimble.compile(model, x)(x), model(x), strict=True):
        assert torch.equal(got, expected)


def test_inputs_written_over():
    def model(x):
        x.mul_(2)
        return torch.sigmoid(x)

    agrees(model, torch.randn(30).to(NARROW))


def test_a_state_is_kept_in_bfloat16():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, dtype=NARROW))

        def forward(self, x):
            self.seen.add_(x.mean(0))
            return x + self.seen

    ours, theirs = Counting(), Counting()
    x = torch.randn(3, 4).to(NARROW)
    engine = nimble.compile(ours, x)
    for _ in range(3):
        torch.testing.assert_close(engine(x), theirs(x), rtol=0.02, atol=0.02)
        torch.testing.assert_close(ours.seen, theirs.seen, rtol=0.02, atol=0.02)


def test_dropout_draws_as_eager():
    class Dropping(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, training=True) * 2

    x = torch.ones(1000, dtype=NARROW)
    engine = nimble.compile(Dropping(), x)
    torch.manual_seed(3)
    got = engine(x)
    assert set(got.unique().tolist()) == {0.0, 4.0}
    assert 300 < int((got == 0).sum()) < 700


def test_an_edit_of_weights_is_seen():
    model, x = nn.Linear(64, 64).to(NARROW), torch.randn(3, 64).to(NARROW)
    engine = nimble.compile(model, x)
    with torch.no_grad():
        model.weight.mul_(2)
    torch.testing.assert_close(engine(x), model(x), rtol=0.02, atol=0.02)


def test_saved_and_loaded(tmp_path):
    model, x = Block().to(NARROW).eval(), torch.randn(1, 3, 12, 12, dtype=NARROW)
    engine = nimble.compile(model, x)
    engine.save(tmp_path / "block.nimble")
    assert torch.equal(nimble.load(tmp_path / "block.nimble")(x), engine(x))


def test_a_table_is_not_widened():
    """Only the rows that are looked up are."""
    model, x = nn.Embedding(500, 8).to(NARROW), torch.randint(0, 500, (3, 4))
    looked_up = nn.Sequential(model, nn.LayerNorm(8).to(NARROW))
    agrees(looked_up, x)
    _, lowered, *_ = graphs(looked_up, (x,))
    assert fell_back(lowered) == []
    assert all(v.numel < 500 for v in lowered.values if v.dtype is DType.FLOAT32)


def test_what_depends_on_the_dtype_is_computed_in_it():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 300.0]).bfloat16()
    for model in (
        lambda x: torch.nan_to_num(x * 2),
        lambda x: torch.nan_to_num(x, posinf=3.0) - 1,
        lambda x: (torch.nan_to_num(x, 0.0, 0.0, 0.0) + 1).long(),
    ):
        assert torch.equal(nimble.compile(model, (x,))(x), model(x))
