"""Attention against PyTorch in double precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import run
from torch import Tensor

from nimble import _core


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    batch, heads, queries, dim = q.shape
    keys, value_dim = v.shape[2:]
    y = torch.full((batch, queries, heads, value_dim + 1), 7.0)[..., :-1].transpose(1, 2)
    scratch = torch.full((_core.attention_scratch(keys, dim, value_dim) // 4 + 9,), 7.0)
    ints = [batch, heads, heads // k.shape[1], queries, keys, dim, value_dim, causal]
    ints += [mask is not None]
    for tensor in (y, q, k, v):
        ints += tensor.stride()[:3]
    tensors = [y, scratch, q, k, v]
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys)
        ints += mask.stride()
        tensors.append(mask)
    run("attention.float32", tensors, ints, [scale])
    assert (scratch[-9:] == 7).all()
    return y


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, **options: object) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1).double() for t in (k, v))
    return F.scaled_dot_product_attention(q.double(), k, v, scale=scale, **options)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 2),
    heads=st.sampled_from([(1, 1), (3, 3), (4, 2)]),
    queries=st.sampled_from([0, 1, 2, 3, 6, 7, 12, 20]),
    keys=st.sampled_from([1, 5, 16, 17, 40]),
    dims=st.sampled_from([(16, 16), (8, 8), (5, 7), (64, 64), (20, 33)]),
    mode=st.sampled_from(["plain", "causal", "mask", "row mask"]),
)
def test_attention(
    batch: int,
    heads: tuple[int, int],
    queries: int,
    keys: int,
    dims: tuple[int, int],
    mode: str,
) -> None:
    q = torch.randn(batch, queries, heads[0], dims[0]).transpose(1, 2)
    k = torch.randn(batch, keys, heads[1], dims[0] + 3)[..., 3:].transpose(1, 2)
    v = torch.randn(batch, heads[1], keys, dims[1])
    mask = None
    if mode == "mask":
        mask = torch.randn(batch, 1, queries, keys)
        mask[mask > 1] = -float("inf")
        mask[..., 0] = 0
    elif mode == "row mask":
        mask = torch.randn(1, heads[0], 1, keys)
    causal = mode == "causal"
    found = attention(q, k, v, 0.3, causal=causal, mask=mask)
    options = {"attn_mask": None if mask is None else mask.double(), "is_causal": causal}
    exact = reference(q, k, v, 0.3, **options)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_query_that_sees_nothing_gives_zero() -> None:
    q, k, v = torch.randn(3, 1, 1, 8, 16)
    mask = torch.zeros(8, 8)
    mask[2] = -float("inf")
    found = attention(q, k, v, 1.0, mask=mask)
    assert found[0, 0, 2].count_nonzero() == 0
    exact = reference(q, k, v, 1.0, attn_mask=mask.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 16) * 100
    found = attention(q, k, v, 1.0)
    torch.testing.assert_close(found.double(), reference(q, k, v, 1.0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("ints", "message"),
    [
        ([1, 1, 0], "heads per key head 0"),
        ([1, 1, 1, 4, 0], "keys 0"),
        ([1, 1, 1, 4, 4, 8, 8, 0, 0, *[8] * 12], "takes 5 operands, not 2"),
        ([1, 1, 1, 4, 4, 8, 8, 0, 1, *[8] * 12], "batch stride is missing"),
    ],
)
def test_malformed_calls_are_refused(ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("attention.float32", list(torch.zeros(2, 8)), ints, [1.0])
