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
    sums: Tensor | None = None,
) -> Tensor:
    batch, heads, queries, dim = q.shape
    keys, value_dim = v.shape[2:]
    y = torch.full((batch, queries, heads, value_dim + 1), 7.0)[..., :-1].transpose(1, 2)
    scratch = torch.full((_core.attention_scratch(keys, dim, value_dim) // 4 + 9,), 7.0)
    ints = [batch, heads, heads // k.shape[1], queries, keys, dim, value_dim, causal]
    ints += [mask is not None, sums is not None]
    for tensor in (y, q, k, v):
        ints += tensor.stride()[:3]
    tensors = [y, scratch, q, k, v]
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys)
        ints += mask.stride()
        tensors.append(mask)
    if sums is not None:
        ints += sums.stride()
        tensors.append(sums)
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


def gradients(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool,
    mask: Tensor | None,
) -> list[Tensor]:
    batch, heads, queries, dim = q.shape
    keys, value_dim = v.shape[2:]
    sums = torch.full((batch, queries, heads), 7.0).transpose(1, 2)
    y = attention(q, k, v, scale, causal=causal, mask=mask, sums=sums)
    results = [torch.full_like(t, 7.0) for t in (q, k, v)]
    room = _core.attention_gradient_scratch(queries, keys, dim, value_dim) // 4
    scratch = torch.full((room + 9,), 7.0)
    ints = [batch, heads, queries, keys, dim, value_dim, causal, mask is not None]
    for tensor in (*results, dy, q, k, v, y, sums):
        ints += tensor.stride()[:3]
    tensors = [*results, scratch, dy, q, k, v, y, sums]
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys)
        ints += mask.stride()
        tensors.append(mask)
    run("attention_gradient.float32", tensors, ints, [scale])
    assert (scratch[-9:] == 7).all()
    return results


def exact_gradients(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, **options: object
) -> list[Tensor]:
    inputs = [t.double().requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*inputs, scale=scale, **options)  # type: ignore[arg-type]
    return list(torch.autograd.grad(y, inputs, dy.double()))


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    queries=st.sampled_from([1, 3, 6, 16, 20, 37]),
    keys=st.sampled_from([1, 5, 16, 17, 40]),
    dims=st.sampled_from([(16, 16), (64, 64), (16, 48)]),
    mode=st.sampled_from(["plain", "causal", "mask", "row mask"]),
)
def test_gradients_of_attention(
    batch: int, heads: int, queries: int, keys: int, dims: tuple[int, int], mode: str
) -> None:
    q = torch.randn(batch, queries, heads, dims[0]).transpose(1, 2)
    k = torch.randn(batch, keys, heads, dims[0]).transpose(1, 2)
    v = torch.randn(batch, heads, keys, dims[1])
    dy = torch.randn(batch, queries, heads, dims[1] + 2)[..., 2:].transpose(1, 2)
    mask = None
    if mode == "mask":
        mask = torch.randn(batch, 1, queries, keys)
        mask[mask > 1] = -float("inf")
        mask[..., 0] = 0
    elif mode == "row mask":
        mask = torch.randn(1, heads, 1, keys)
    causal = mode == "causal"
    found = gradients(dy, q, k, v, 0.3, causal=causal, mask=mask)
    options = {"attn_mask": None if mask is None else mask.double(), "is_causal": causal}
    for mine, exact in zip(found, exact_gradients(dy, q, k, v, 0.3, **options), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-4)


def test_a_query_that_sees_nothing_moves_nothing() -> None:
    dy, q, k, v = torch.randn(4, 1, 1, 8, 16)
    mask = torch.zeros(8, 8)
    mask[2] = -float("inf")
    dq, dk, dv = gradients(dy, q, k, v, 1.0, causal=False, mask=mask)
    assert dq[0, 0, 2].count_nonzero() == 0
    seeing = [i for i in range(8) if i != 2]
    some = exact_gradients(dy[:, :, seeing], q[:, :, seeing], k, v, 1.0)
    torch.testing.assert_close(dq[:, :, seeing].double(), some[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dk.double(), some[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dv.double(), some[2], rtol=1e-5, atol=1e-5)


def test_sums_are_logarithms() -> None:
    q, k, v = torch.randn(3, 2, 3, 9, 16)
    sums = torch.zeros(2, 3, 9)
    attention(q, k, v, 0.5, sums=sums)
    scores = q.double() @ k.double().mT * 0.5
    torch.testing.assert_close(sums.double(), scores.logsumexp(-1), rtol=1e-6, atol=1e-6)


def test_gradients_of_odd_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="value dimension is no multiple of 16"):
        run("attention_gradient.float32", list(torch.zeros(2, 8)), [1, 1, 4, 4, 16, 24], [1.0])


@pytest.mark.parametrize(
    ("ints", "message"),
    [
        ([1, 1, 0], "heads per key head 0"),
        ([1, 1, 1, 4, 0], "keys 0"),
        ([1, 1, 1, 4, 4, 8, 8, 0, 0, 0, *[8] * 12], "takes 5 operands, not 2"),
        ([1, 1, 1, 4, 4, 8, 8, 0, 1, 0, *[8] * 12], "batch stride is missing"),
    ],
)
def test_malformed_calls_are_refused(ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("attention.float32", list(torch.zeros(2, 8)), ints, [1.0])
