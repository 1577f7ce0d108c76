"""Fused pointwise programs against PyTorch: values, special values, strides, dtypes, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import OPS, pointwise, program, run
from torch import Tensor

INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1e-45, 1e-38, 3e38, -3e38, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
SPECIAL += [0.3, -0.3, 1.0, -1.0, 88.8, -88.8, 104.0, -104.0, 8388609.0, 4194303.5, -20.5, 21.0]

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": torch.clone,
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "relu": torch.relu,
    "logical_not": torch.logical_not,
    # In double: PyTorch's kernel for AVX-512 makes inf NaN, and 3e38 inf.
    "gelu_erf": lambda x: F.gelu(x.double()),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "bfloat16": lambda x: x.to(torch.bfloat16).float(),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "leaky_relu": lambda x, y: torch.where(x > 0, x, x * y),
    "elu": lambda x, y: torch.where(x > 0, x, y * torch.expm1(x)),
}
TERNARY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "fma": lambda x, y, z: x * y + z,
    "clamp": torch.clamp,
    "where": lambda x, y, z: torch.where(x != 0, y, z),
    "softplus": lambda x, y, z: torch.where(x * y > z, x, torch.log1p(torch.exp(x * y)) / y),
}
# Most of these lose digits by cancellation, as PyTorch's formulas do.
LOOSE = {"gelu_erf", "gelu_tanh", "hardswish", "mish", "logical_not"}


def apply(op: str, *inputs: Tensor) -> Tensor:
    out = torch.full_like(inputs[0], 7.0)
    pointwise([out], inputs, program((op, len(inputs), tuple(range(len(inputs))))))
    return out


def relative_error(found: Tensor, exact: Tensor) -> float:
    """The largest where the exact value is a normal float."""
    normal = exact.isfinite() & (exact.abs() > 1.2e-38) & (exact.abs() < 3.4e38)
    return float(((found.double() - exact).abs() / exact.abs())[normal].max())


def assert_like_torch(found: Tensor, expected: Tensor, rtol: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected.float(), rtol=rtol, atol=1e-6, equal_nan=True)


def test_every_operation_is_tested() -> None:
    assert OPS.keys() == UNARY.keys() | BINARY.keys() | TERNARY.keys()


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    special = torch.tensor(SPECIAL)
    found, expected = apply(op, special), UNARY[op](special).float()
    if op == "hardswish":  # ours does not overflow on the way
        found, expected = found[special != 3e38], expected[special != 3e38]
    assert_like_torch(found, expected)
    if op not in {"gelu_erf", "gelu_tanh", "mish"}:
        zeros = (expected == 0) & ~expected.isnan()
        assert torch.equal(found[zeros].signbit(), expected[zeros].signbit())
    x = torch.linspace(-30, 30, 40001)
    exact = UNARY[op](x.double()).double()
    if op in LOOSE:
        assert_like_torch(apply(op, x), exact)
    else:
        assert relative_error(apply(op, x), exact) < 3e-7


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sigmoid", "erf", "log1p", "expm1"])
def test_all_magnitudes(op: str) -> None:
    x = torch.arange(-(2**31), 2**31, 16411, dtype=torch.int64).int().view(torch.float32)
    x = x[x.isfinite()]
    found, exact = apply(op, x), UNARY[op](x.double())
    assert relative_error(found, exact) < 3e-7
    assert torch.equal(found.isnan(), exact.isnan())
    if op != "sigmoid":  # whose denominator overflows where the result is denormal, as PyTorch's
        tiny = exact.abs() < 1.2e-38
        assert torch.all((found.double() - exact)[tiny].abs() < 3e-45)


@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str) -> None:
    special = torch.tensor(SPECIAL)
    a, b = special.repeat_interleave(len(special)), special.repeat(len(special))
    assert_like_torch(apply(op, a, b), BINARY[op](a, b))
    a, b = torch.randn(2, 1003)
    assert_like_torch(apply(op, a, b), BINARY[op](a, b))


@pytest.mark.parametrize("op", TERNARY)
def test_ternary(op: str) -> None:
    a, b, c = torch.randn(3, 777)
    if op == "softplus":
        b, c = torch.full_like(a, 2.0), torch.full_like(a, 1.5)
    assert_like_torch(apply(op, a, b, c), TERNARY[op](a, b, c))
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 5.0])
    b, c = torch.full_like(special, -1.0), torch.full_like(special, 2.0)
    if op != "softplus":
        assert_like_torch(apply(op, special, b, c), TERNARY[op](special, b, c))


@st.composite
def strided(draw: st.DrawFn, shape: list[int], *, broadcast: bool) -> Tensor:
    """A tensor of that shape: permuted in memory, with gaps, and with size-1 dimensions."""
    order = draw(st.permutations(range(len(shape))))
    sizes = [1 if broadcast and draw(st.booleans()) else n for n in shape]
    steps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in shape]
    base = torch.randn([sizes[d] * steps[d] for d in order])
    return base.permute([order.index(d) for d in range(len(shape))])[
        tuple(slice(None, None, step) for step in steps)
    ]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, list[Tensor]]:
    size = st.sampled_from([0, 1, 1, 2, 3, 5, 8, 17, 40])
    shape = draw(st.lists(size, max_size=4))
    if draw(st.booleans()):
        shape.append(draw(st.sampled_from([511, 512, 513, 1100])))
    out = draw(strided(shape, broadcast=False))
    return out, [draw(strided(shape, broadcast=True)) for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=80, deadline=None)
@given(cases())
def test_strides_and_broadcasting(case: tuple[Tensor, list[Tensor]]) -> None:
    out, inputs = case
    last = len(inputs)
    steps = [("mul", last + 1, (0, -1))]
    steps += [("add", last + 1, (last + 1, i)) for i in range(1, last)]
    steps += [("tanh", last, (last + 1,))]
    pointwise([out], inputs, program(*steps), [0.5])
    expected = torch.tanh(sum(inputs[1:], inputs[0] * 0.5)).expand(out.shape)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_programs(data: st.DataObject) -> None:
    """Registers are placed so that none is lost, however many and whatever dies when."""
    ops = ["add", "sub", "maximum", "minimum", "neg", "abs", "fma", "where", "copy"]
    inputs = list(torch.randn(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 1300))))
    outputs = data.draw(st.integers(1, 2))
    constants = [0.25, -3.0]
    first_free = len(inputs) + outputs
    values = dict(enumerate(inputs)) | {-1 - i: torch.tensor(c) for i, c in enumerate(constants)}
    steps = [("add", len(inputs) + o, (0, -1)) for o in range(outputs)]
    steps += [("add", first_free, (-2, -1))]
    for _ in range(data.draw(st.integers(0, 40))):
        op = data.draw(st.sampled_from(ops))
        readable = [*range(-2, len(inputs)), *{step[1] for step in steps}]
        count = 1 if op in UNARY else 2 if op in BINARY else 3
        operands = tuple(data.draw(st.sampled_from(readable)) for _ in range(count))
        steps.append((op, data.draw(st.integers(len(inputs), first_free + 12)), operands))
    for op, destination, operands in steps:
        function = UNARY.get(op) or BINARY.get(op) or TERNARY[op]
        values[destination] = function(*(values[r] for r in operands)).expand(inputs[0].shape)
    outs = [torch.empty_like(inputs[0]) for _ in range(outputs)]
    pointwise(outs, inputs, program(*steps), constants)
    for o, out in enumerate(outs):
        torch.testing.assert_close(out, values[len(inputs) + o], rtol=1e-4, atol=1e-4)


def test_the_output_may_be_an_input() -> None:
    x, y = torch.randn(2, 1000)
    expected = (x * 2 + y) * x
    pointwise([x], [x, y], program(("fma", 2, (0, -1, 1)), ("mul", 2, (2, 0))), [2.0])
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 5], [0, -3, 2]]).to(dtype)
    wide = torch.full((2, 3), 9.0)
    pointwise([wide], [x], program(("add", 1, (0, -1))), [0.5])
    assert torch.equal(wide, x.float() + 0.5)
    narrow = torch.zeros(3, 2, dtype=dtype).t()
    values = torch.tensor([[0.0, 0.9, -0.9], [2.7, -2.7, 100.0]])
    pointwise([narrow], [values], program(("copy", 1, (0,))))
    assert torch.equal(narrow, values.to(dtype))


def test_a_mask_chooses() -> None:
    mask, x = torch.rand(4, 1, 33) > 0.5, torch.randn(4, 6, 33)
    out = torch.empty_like(x)
    pointwise([out], [mask, x], program(("where", 2, (0, -1, 1))), [-INF])
    assert torch.equal(out, x.masked_fill(mask, -INF))


GOOD = [1, 1, 1, 8, 0, 1, 0, 1, 1, OPS["neg"], 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("ints", "message"),
    [
        ([], "outputs is missing"),
        ([0, 1], "outputs 0, which is not between 1 and 32"),
        ([1, 2], "takes 3 operands, not 2"),
        ([1, 1, 7], "dimensions 7"),
        ([1, 1, 1, -8], "size -8"),
        ([1, 1, 1, 8, 5], "dtype 5"),
        ([1, 1, 1, 8, 0, 0, 0, 1, 1, OPS["neg"], 1, 0, 0, 0], "output 0 twice: stride 0"),
        ([*GOOD[:9], 99, 1, 0, 0, 0], "opcode 99"),
        ([*GOOD[:9], OPS["neg"], 0, 0, 0, 0], "writes register 0 in instruction 0, an input"),
        ([*GOOD[:9], OPS["neg"], 1, 5, 0, 0], "reads register 5 in instruction 0, before"),
        ([*GOOD[:9], OPS["neg"], 1, -1, 0, 0], "has no float 0, only 0"),
        ([*GOOD[:9], OPS["neg"], 2, 0, 0, 0], "never writes output 0"),
        ([*GOOD[:8], 0], "instructions 0"),
        ([*GOOD[:8], 2, *GOOD[9:]], "opcode is missing"),
        ([*GOOD, 1], "takes 14 ints, not 15"),
    ],
)
def test_malformed_programs_are_refused(ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("pointwise.float32", list(torch.zeros(2, 8)), ints)


NEAR = [1.00390625, 1.01171875, -1.00390625, 3.3895e38, 3.4e38, -3.4e38, 1e-40, 1e-45]
"""Halfway between two numbers of bfloat16, and at its ends."""


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("count", [1, 16, 700])
def test_bfloat16_as_pytorch_rounds_it(count: int, step: int) -> None:
    x = torch.cat([torch.tensor(NEAR + SPECIAL), torch.randn(count)])
    x = x.repeat_interleave(step)[::step]
    narrow, wide = torch.empty(len(x), dtype=torch.bfloat16), torch.empty_like(x)
    pointwise([narrow, wide], [x], program(("bfloat16", 1, (0,)), ("bfloat16", 2, (0,))))
    again = torch.empty_like(wide)
    pointwise([again], [narrow.repeat_interleave(step)[::step]], program(("copy", 1, (0,))))
    expected = x.to(torch.bfloat16)
    for got in (narrow.float(), wide, again):
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.nan_to_num(7.0), expected.float().nan_to_num(7.0))


def test_what_was_not_rounded_is_when_it_is_written() -> None:
    x = torch.tensor([*NEAR, NAN]).repeat(5)
    out = torch.empty(len(x), dtype=torch.bfloat16)
    pointwise([out], [x], program(("copy", 1, (0,))))
    torch.testing.assert_close(out, x.to(torch.bfloat16), rtol=0, atol=0, equal_nan=True)
