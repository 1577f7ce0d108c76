"""Products of a few rows with packed weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import DTYPES, couples, program, run
from torch import Tensor


def packed(weight: Tensor) -> Tensor:
    n, k = weight.shape
    out = torch.full((-(-n // 16), k, 16), 7.0)
    run("pack_linear.float32", [out, weight], [n, k, *weight.stride()])
    return out


def close(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (16, 3), (17, 5), (40, 8), (0, 3)])
def test_packing(n: int, k: int) -> None:
    weight = torch.randn(n, k)
    padded = torch.zeros(-(-n // 16) * 16, k)
    padded[:n] = weight
    expected = padded.view(-1, 16, k).transpose(1, 2)
    assert torch.equal(packed(weight), expected)
    assert torch.equal(packed(weight.t().contiguous().t()), expected)


@settings(max_examples=120, deadline=None)
@given(
    m=st.integers(0, 17),
    n=st.sampled_from([1, 7, 8, 9, 16, 31, 32, 33, 48, 100]),
    k=st.sampled_from([0, 1, 2, 3, 4, 7, 64, 129]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    data=st.data(),
)
def test_linear(
    m: int, n: int, k: int, flags: tuple[bool, bool, bool, bool], data: st.DataObject
) -> None:
    has_bias, has_add, tiled, narrow = flags
    together, dtype, pack = 1, torch.float32, packed
    if narrow and k % 2 == 0:
        together, dtype, pack = 2, torch.bfloat16, lambda weight: couples(packed(weight))
    x, weight, bias = torch.randn(m, k + 4)[:, :k], torch.randn(n, k), torch.randn(n)
    x, weight = x.to(dtype), weight.to(dtype).float()
    add, y = torch.randn(m, n + 1)[:, :n], torch.full((m, n + 5), 7.0)
    exact = x.double() @ weight.double().t() + has_bias * bias.double() + has_add * add.double()
    tensors = [y, x, pack(weight)] + [bias] * has_bias + [add] * has_add
    panels = -(-n // 16)
    cut = data.draw(st.integers(0, panels)) if tiled else panels
    for first, last in ((0, cut), (cut, panels)):
        inside = [k // together, x.stride(0) // together]
        ints = [m, n, n + 5, first, last, *inside, has_bias, has_add, n + 1]
        run(f"linear.{str(dtype).removeprefix('torch.')}", tensors, ints)
    close(y[:, :n], exact)
    assert torch.equal(y[:, n:], torch.full((m, 5), 7.0))


@pytest.mark.parametrize(("m", "k"), [(11, 8000), (64, 1025), (150, 1024), (700, 100), (300, 701)])
def test_more_input_than_the_cache_holds(m: int, k: int) -> None:
    """It is multiplied in blocks of rows and columns; bias and residual are added once. Of small
    whole numbers, whose sums float32 holds exactly."""
    n = 70
    shapes = ((m, k), (n, k), (n,), (m, n))
    x, weight, bias, add = (torch.randint(-9, 10, shape).float() for shape in shapes)
    y = torch.full((m, n), 7.0)
    code = program(("relu", 1, (0,)))
    for first, last in ((0, 2), (2, 5)):
        ints = [m, n, n, first, last, k, k, 1, 1, n, 0, *code]
        run("linear.float32", [y, x, packed(weight), bias, add], ints)
    assert torch.equal(y.double(), (x.double() @ weight.double().t() + bias + add).relu())


def test_an_epilogue_with_a_residual_and_a_broadcast_scale() -> None:
    m, n, k = 5, 700, 20
    x, weight, residual = torch.randn(m, k), torch.randn(n, k), torch.randn(m, n)
    scale = torch.randint(0, 5, (m,))
    y = torch.empty(m, n)
    code = program(("relu", 4, (0,)), ("fma", 4, (4, 2, 1)), ("mul", 3, (4, -1)))
    extras = [2, DTYPES[torch.float32], n, 1, DTYPES[torch.int64], 1, 0]
    for first, last in ((0, 20), (20, 44)):
        ints = [m, n, n, first, last, k, k, 0, 0, 0, *extras, *code]
        run("linear.float32", [y, x, packed(weight), residual, scale], ints, [0.5])
    exact = (x.double() @ weight.double().t()).relu() * scale[:, None] + residual
    close(y, exact / 2)


@pytest.mark.parametrize(
    ("ints", "message"),
    [
        ([1, 16], "y stride is missing"),
        ([1, 16, 16, 0, 2], "last panel 2, which is not between 0 and 1"),
        ([1, 16, 16, 1, 0], "last panel 0"),
        ([1, 16, 16, 0, 1, 4, 4, 2], "bias 2"),
        ([1, 16, 16, 0, 1, 4, 4, 1, 0, 0], "takes 4 operands, not 3"),
        ([1, 16, 16, 0, 1, 4, 4, 0, 0, 0, 0], "instructions is missing"),
        ([1, 16, 16, 0, 1, 4, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], "writes register 0"),
        ([1, 16, 16, 0, 1, 4, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0], "takes 4 operands"),
    ],
)
def test_malformed_calls_are_refused(ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("linear.float32", list(torch.zeros(3, 64)), ints)
