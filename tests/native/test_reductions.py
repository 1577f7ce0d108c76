"""Softmax, reductions, argmax, cumulative sums and rows chosen by indices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import run
from torch import Tensor

INF, NAN = float("inf"), float("nan")


def close(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=2e-6, atol=2e-6, equal_nan=True)


def outer(*tensors: Tensor) -> list[int]:
    """The rows of tensors whose last dimension is dealt with apart."""
    shape = tensors[0].shape[:-1]
    ints = [len(shape), *shape]
    for tensor in tensors:
        ints += tensor.stride()[:-1]
    return ints


@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
@pytest.mark.parametrize("length", [1, 5, 8, 17, 64, 1003])
@pytest.mark.parametrize("in_place", [False, True])
def test_softmax(kind: str, length: int, in_place: bool) -> None:
    x = (torch.randn(2, 3, 4, length + 1) * 10)[..., 1:]
    exact = getattr(torch, kind)(x.double(), -1)
    y = x if in_place else torch.empty(2, 3, 4, length)
    run(f"{kind}.float32", [y, x], [length, *outer(y, x)])
    torch.testing.assert_close(y.double(), exact, rtol=4e-6, atol=2e-6)


def test_softmax_of_special_values() -> None:
    rows = [[INF, 0, 1], [-INF, -INF, -INF], [NAN, 1, 2], [-INF, 3, 3], [3e38, -3e38, 3e38]]
    x = torch.tensor(rows)
    y = torch.empty_like(x)
    run("softmax.float32", [y, x], [3, *outer(y, x)])
    close(y, torch.softmax(x, -1).double())


REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(list(REDUCTIONS)),
    shape=st.lists(st.sampled_from([1, 2, 3, 8, 9, 40]), min_size=1, max_size=4),
    data=st.data(),
)
def test_reductions(kind: str, shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    x = torch.randn([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    dims = sorted(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)))
    exact = REDUCTIONS[kind](x.double(), dims)
    y = torch.full(exact.shape, 7.0)
    kept = [d for d in range(len(shape)) if d not in dims]
    ints = [len(kept), *y.shape, *y.stride(), *(x.stride(d) for d in kept)]
    ints += [len(dims), *(shape[d] for d in dims), *(x.stride(d) for d in dims)]
    run(f"{kind}.float32", [y, x], ints)
    # Of many numbers that cancel each other out little is left but their rounding.
    size = REDUCTIONS[kind](x.double().abs(), dims).max().item()
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-6 * max(size, 10))


def test_reductions_of_many_are_precise() -> None:
    torch.manual_seed(0)
    x = torch.rand(300_000)
    y = torch.empty(1)
    run("sum.float32", [y, x], [0, 1, 300_000, 1])
    assert abs(float(y) / float(x.double().sum()) - 1) < 5e-7
    wide = torch.rand(100_000, 3)
    columns = torch.empty(3)
    run("mean.float32", [columns, wide], [1, 3, 1, 1, 1, 100_000, 3])
    torch.testing.assert_close(columns.double(), wide.double().mean(0), rtol=5e-6, atol=0)


def test_reductions_of_special_values() -> None:
    x = torch.tensor([[1.0, NAN, 3.0] * 7, [-INF, -2.0, -5.0] * 7])
    for kind in ("max", "min", "sum"):
        y = torch.empty(2)
        run(f"{kind}.float32", [y, x], [1, 2, 1, 21, 1, 21, 1])
        close(y, REDUCTIONS[kind](x, [1]).double())
    empty = torch.empty(0)
    y = torch.full((1,), 7.0)
    run("sum.float32", [y, empty], [0, 1, 0, 1])
    assert y.item() == 0
    run("mean.float32", [y, empty], [0, 1, 0, 1])
    assert y.isnan().all()
    with pytest.raises(ValueError, match="cannot reduce no elements"):
        run("max.float32", [y, empty], [0, 1, 0, 1])


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("length", [1, 7, 16, 100])
def test_arg(kind: str, length: int) -> None:
    x = torch.randint(0, 20, (5, length)).float()
    x[3, length // 2] = NAN
    x[4] = -INF
    for tensor in (x, torch.stack([x, x], -1)[..., 0]):
        y = torch.empty(5, dtype=torch.int64)
        run(f"{kind}.float32", [y, tensor], [length, tensor.stride(1), 1, 5, 1, tensor.stride(0)])
        assert torch.equal(y, getattr(torch, kind)(x, -1))


def test_cumsum() -> None:
    x = torch.randn(3, 1000, 2)
    y = torch.empty(3, 2, 1000).transpose(1, 2)
    ints = [1000, y.stride(1), x.stride(1), 2, 3, 2, y.stride(0), y.stride(2), 2000, 1]
    run("cumsum.float32", [y, x], ints)
    torch.testing.assert_close(y, x.cumsum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_rows_by_index(dtype: torch.dtype) -> None:
    table = torch.randint(0, 100, (9, 14)).to(dtype)[:, 3:10]
    index = torch.randint(0, 9, (4, 5))
    y = torch.zeros(20, 7, dtype=dtype)
    size = table.element_size()
    run("gather_rows", [y, table, index], [size, 1, 20, 7, 9, 0, 7, 0, 14, 0, 1, 0])
    assert torch.equal(y, table[index.view(-1)])
    x, index = torch.randint(0, 100, (2, 6, 3)).to(dtype), torch.tensor([5, -1, 0, -6])
    y = torch.zeros(2, 4, 3, dtype=dtype)
    run("gather_rows", [y, x, index], [size, 2, 4, 3, 6, 12, 3, 18, 3, 0, 1, 1])
    assert torch.equal(y, x[:, index])


@pytest.mark.parametrize("skipped", [-1, 3])
def test_rows_added_where_they_came_from(skipped: int) -> None:
    index, x = torch.randint(0, 9, (40,)), torch.randn(40, 11)
    out = torch.full((9, 13), 7.0)
    for first, last in ((0, 4), (4, 9)):
        ints = [40, 11, 9, last - first, first, skipped, 13, 11]
        run("scatter_rows.float32", [out[first:last], x, index], ints)
    expected = torch.zeros(9, 11).index_add(0, index, x)
    if skipped >= 0:
        expected[skipped] = 0
    torch.testing.assert_close(out[:, :11], expected)
    assert (out[:, 11:] == 7).all()


@pytest.mark.parametrize("index", [9, -1, 2**62])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    y, table = torch.zeros(2, 3), torch.zeros(9, 3)
    indices = torch.tensor([0, index])
    with pytest.raises(IndexError, match=f"index out of range in self: {index} of 9"):
        run("gather_rows", [y, table, indices], [4, 1, 2, 3, 9, 0, 3, 0, 3, 0, 1, 0])
    with pytest.raises(IndexError, match=f"index out of range in self: {index} of 9"):
        run("scatter_rows.float32", [table, y, indices], [2, 3, 9, 9, 0, -1, 3, 3])


@pytest.mark.parametrize(
    ("kernel", "ints", "floats", "message"),
    [
        ("softmax.float32", [0], [], "length 0"),
        ("softmax.float32", [4, 0], [1.0], "takes 0 floats, not 1"),
        ("sum.float32", [6], [], "outer dimensions 6"),
        ("sum.float32", [1, -1], [], "outer size -1"),
        ("argmax.float32", [0, 1], [], "length 0"),
        ("gather_rows", [17], [], "element size 17"),
        ("cumsum.float32", [-1], [], "length -1"),
    ],
)
def test_malformed_calls_are_refused(
    kernel: str, ints: list[int], floats: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(kernel, list(torch.zeros(2, 8)), ints, floats)
