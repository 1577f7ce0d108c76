"""Poolings of channels-last tensors, which may be slices of wider ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from native_call import run
from torch import Tensor


def slice_of_wider(n: int, h: int, w: int, c: int) -> Tensor:
    return torch.randn(n, h, w, c + 5)[..., 2 : c + 2]


def strides(y: Tensor, x: Tensor) -> list[int]:
    return [*y.stride()[:3], *x.stride()[:3]]


def sizes(y: Tensor, x: Tensor) -> list[int]:
    n, h, w, c = x.shape
    return [n, c, h, w, *y.shape[1:3], *strides(y, x)]


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(["max", "avg", "avg_exclude_padding"]),
    size=st.tuples(st.integers(1, 2), st.integers(1, 12), st.integers(1, 12)),
    channels=st.sampled_from([1, 7, 8, 32, 45]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ceil=st.booleans(),
    data=st.data(),
)
def test_windows(
    kind: str,
    size: tuple[int, int, int],
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    ceil: bool,
    data: st.DataObject,
) -> None:
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    dilation = (1, 1)
    if kind == "max":
        dilation = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    assume(all(s + 2 * p >= span for s, p, span in zip(size[1:], padding, spans, strict=True)))
    x = slice_of_wider(*size, channels)
    nchw = x.permute(0, 3, 1, 2).double()
    if kind == "max":
        exact = F.max_pool2d(nchw, kernel, stride, padding, dilation, ceil)
    else:
        exact = F.avg_pool2d(nchw, kernel, stride, padding, ceil, kind == "avg")
    exact = exact.permute(0, 2, 3, 1)
    y = slice_of_wider(*exact.shape)
    ints = sizes(y, x)
    for k, s, p, d in zip(kernel, stride, padding, dilation, strict=True):
        ints += [k, s, p, d]
    ints += [] if kind == "max" else [kind == "avg", 0]
    run(f"{kind[:3]}_pool_nhwc.float32", [y, x], ints)
    torch.testing.assert_close(y.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("out", [(1, 1), (2, 3), (7, 7), (9, 4)])
def test_adaptive(out: tuple[int, int]) -> None:
    x = slice_of_wider(2, 7, 9, 40)
    y = torch.empty(2, *out, 40)
    run("adaptive_avg_pool_nhwc.float32", [y, x], sizes(y, x))
    exact = F.adaptive_avg_pool2d(x.permute(0, 3, 1, 2).double(), out).permute(0, 2, 3, 1)
    torch.testing.assert_close(y.double(), exact, atol=1e-6, rtol=1e-6)


def test_a_divisor_and_special_values() -> None:
    x = torch.tensor([float("nan"), -float("inf"), 1.0, 2.0]).view(1, 1, 4, 1)
    y = torch.empty(1, 1, 2, 1)
    window = [1, 1, 0, 1, 2, 2, 0, 1]
    run("max_pool_nhwc.float32", [y, x], sizes(y, x) + window)
    assert y[0, 0, 0, 0].isnan()
    assert y[0, 0, 1, 0] == 2
    run("avg_pool_nhwc.float32", [y, x], [*sizes(y, x), *window, 1, 4])
    assert y[0, 0, 1, 0] == 0.75


@pytest.mark.parametrize(
    ("kernel", "ints", "message"),
    [
        ("max_pool_nhwc.float32", [1, 8, 0], "height 0"),
        ("max_pool_nhwc.float32", [1, 8, 4, 4, 2, 2] + [1] * 6 + [2, 2, 2, 1], "padding 2"),
        ("max_pool_nhwc.float32", [1, 8, 4, 4, 3, 2] + [1] * 6 + [2, 2, 0, 1], "beyond the end"),
        (
            "avg_pool_nhwc.float32",
            [1, 8, 4, 4, 2, 2] + [1] * 6 + [2, 2, 0, 2, 2, 2, 0, 1, 0],
            "has no dilation",
        ),
    ],
)
def test_malformed_calls_are_refused(kernel: str, ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(kernel, list(torch.zeros(2, 8)), ints)


@settings(max_examples=80, deadline=None)
@given(
    size=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9)),
    channels=st.sampled_from([1, 7, 16, 45]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    ceil=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gradients_of_the_largest(
    size: tuple[int, int, int],
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    ceil: bool,
    seed: int,
) -> None:
    """The same elements as PyTorch's, of equal ones and of NaN too."""
    torch.manual_seed(seed)
    padding = tuple(seed % (k // 2 + 1) for k in kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    assume(all(s + 2 * p >= span for s, p, span in zip(size[1:], padding, spans, strict=True)))
    # Where a window has no element, PyTorch itself writes beyond its memory.
    assume(all(s >= d for s, d in zip(size[1:], dilation, strict=True)))
    x = slice_of_wider(*size, channels)
    x.copy_(torch.randint(-1, 2, x.shape).float().log() if seed % 2 else x)
    nchw = x.permute(0, 3, 1, 2).contiguous().requires_grad_()
    y = F.max_pool2d(nchw, kernel, stride, padding, dilation, ceil)
    gradient = slice_of_wider(*y.permute(0, 2, 3, 1).shape)
    y.backward(gradient.permute(0, 3, 1, 2))
    assert nchw.grad is not None
    made = slice_of_wider(*x.shape)
    window = [n for d in range(2) for n in (kernel[d], stride[d], padding[d], dilation[d])]
    ints = [*sizes(gradient, x), *window, *made.stride()[:3]]
    run("max_pool_gradient_nhwc.float32", [made, gradient, x], ints)
    torch.testing.assert_close(made.permute(0, 3, 1, 2), nchw.grad)
