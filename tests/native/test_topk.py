"""The largest and the smallest, and where they are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import run
from torch import Tensor


def topk(x: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    rows, length = x.shape
    values, places = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
    ints = [length, k, 1, 1, x.stride(1), largest, 1, rows, k, k, x.stride(0)]
    run("topk.float32", [values, places, x], ints)
    return values, places


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 60),
    data=st.data(),
    largest=st.booleans(),
    turned=st.booleans(),
)
def test_topk(rows: int, length: int, data: st.DataObject, largest: bool, turned: bool) -> None:
    k = data.draw(st.integers(1, length))
    levels = data.draw(st.integers(1, 100))  # few levels: many equal elements
    x = torch.randint(0, levels, (rows, length)).float()
    if turned:
        x = x.t().contiguous().t()
    values, places = topk(x, k, largest)
    # Of equal ones the first: what a stable sort gives.
    ordered = torch.sort(x, dim=1, descending=largest, stable=True)
    assert torch.equal(values, ordered.values[:, :k])
    assert torch.equal(places, ordered.indices[:, :k])


@pytest.mark.parametrize("largest", [True, False])
def test_nan_is_the_largest(largest: bool) -> None:
    x = torch.tensor([[float("nan"), 1, float("inf"), -3, float("nan"), -float("inf"), 2, 0, 5, 9]])
    values, places = topk(x, 10, largest)
    expected = torch.sort(x, dim=1, descending=largest, stable=True)
    torch.testing.assert_close(values, expected.values, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(places, expected.indices)
    few, _ = topk(x, 3, largest)
    torch.testing.assert_close(few, expected.values[:, :3], equal_nan=True, rtol=0, atol=0)
