"""Normalisations against PyTorch in double precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from native_call import program, run
from torch import Tensor


def close(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def rms(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return F.rms_norm(x, [x.shape[-1]], weight, eps)


@pytest.mark.parametrize("length", [1, 7, 8, 33, 100, 768, 9000])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_rows(kind: str, affine: bool, length: int) -> None:
    x = (torch.randn(3, 4, length + 2) * 3 + 5)[..., :length]
    y = torch.empty(3, 4, length)
    weight, bias = torch.randn(2, length)
    ints = [length, affine, affine, 2, 3, 4, *y.stride()[:2], *x.stride()[:2]]
    run(f"{kind}.float32", [y, x, *([weight, bias] if affine else [])], ints, [1e-5])
    exact = x.double()
    if kind == "layer_norm":
        exact = F.layer_norm(exact, [length], eps=1e-5)
    else:
        exact = rms(exact, None, 1e-5)
    close(y, exact * weight.double() + bias.double() if affine else exact)


@pytest.mark.parametrize("length", [1, 7, 16, 33, 100, 768])
@pytest.mark.parametrize("affine", [False, True])
def test_gradients_of_rows(affine: bool, length: int) -> None:
    x = (torch.randn(5, 31, length + 2) * 3 + 5)[..., :length]
    gradient = torch.randn(5, 31, length + 1)[..., :length]
    weight, bias = torch.randn(2, length)
    y, mean, deviation = torch.empty(5, 31, length), torch.empty(5, 31, 1), torch.empty(5, 31, 1)
    outer = [2, 5, 31]
    ints = [length, affine, affine, *outer]
    for t in (y, x, mean):
        ints += t.stride()[:2]
    rest = [weight, bias] if affine else []
    run("layer_norm_with_statistics.float32", [y, mean, deviation, x, *rest], ints, [1e-5])
    made = torch.empty(5, 31, length + 3)[..., :length]
    ints = [length, affine, *outer]
    for t in (made, gradient, x, mean):
        ints += t.stride()[:2]
    operands = [made, gradient, x, mean, deviation, *([weight] if affine else [])]
    run("layer_norm_gradient.float32", operands, ints)
    by_weight, by_bias = torch.empty(2, length)
    ints = [length, 1, 1, *outer]
    for t in (gradient, x, mean):
        ints += t.stride()[:2]
    run("layer_norm_sums.float32", [by_weight, by_bias, gradient, x, mean, deviation], ints)

    exact = x.double().requires_grad_()
    scale = (weight if affine else torch.ones(length)).double().requires_grad_()
    shift = (bias if affine else torch.zeros(length)).double().requires_grad_()
    result = F.layer_norm(exact, [length], scale, shift, 1e-5)
    result.backward(gradient.double())
    close(y, result.detach())
    for found, value in ((made, exact), (by_weight, scale), (by_bias, shift)):
        assert value.grad is not None
        torch.testing.assert_close(found.double(), value.grad, rtol=1e-4, atol=1e-4)


def test_layer_norm_in_place_with_an_epilogue() -> None:
    x = torch.randn(6, 50)
    exact = F.gelu(F.layer_norm(x.double(), [50]))
    ints = [50, 0, 0, 1, 6, 50, 50, 0, *program(("gelu_erf", 1, (0,)))]
    run("layer_norm.float32", [x, x], ints, [1e-5])
    close(x, exact)


def test_nan_stays_in_its_row() -> None:
    x, y = torch.randn(2, 20), torch.empty(2, 20)
    x[1, 3] = float("nan")
    run("layer_norm.float32", [y, x], [20, 0, 0, 1, 2, 20, 20], [1e-5])
    assert y[0].isfinite().all()
    assert y[1].isnan().all()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "pixels", "groups"),
    [(2, 6, 49, 3), (1, 32, 400, 8), (3, 5, 1, 5), (1, 20, 30, 1)],
)
def test_groups(
    channels_last: bool, affine: bool, batch: int, channels: int, pixels: int, groups: int
) -> None:
    x = torch.randn(batch, channels, pixels) * 2 + 3
    weight, bias = torch.randn(2, channels)
    exact = F.group_norm(x.double(), groups)
    if affine:
        exact = exact * weight.double()[:, None] + bias.double()[:, None]
    exact = exact.relu()
    tensors = [weight, bias] if affine else []
    name, inner = "group_norm.float32", pixels
    if channels_last:
        x, exact = x.transpose(1, 2).contiguous(), exact.transpose(1, 2)
        name, inner = "group_norm_nhwc.float32", channels
    y = torch.full((batch, x.shape[1], inner + 3), 7.0)
    ints = [batch, channels, pixels, groups, *y.stride()[:2], *x.stride()[:2], affine, affine]
    run(name, [y, x, *tensors], [*ints, 0, *program(("relu", 1, (0,)))], [1e-5])
    close(y[..., :inner], exact)
    assert (y[..., inner:] == 7).all()


@pytest.mark.parametrize(
    ("kernel", "ints", "message"),
    [
        ("layer_norm.float32", [0], "length 0"),
        ("layer_norm.float32", [8, 0, 0, 6], "outer dimensions 6"),
        ("group_norm.float32", [1, 6, 4, 4], "6 channels, not a multiple of 4 groups"),
        ("group_norm_nhwc.float32", [1, 5000], "channels 5000"),
    ],
)
def test_malformed_calls_are_refused(kernel: str, ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(kernel, list(torch.zeros(2, 8)), ints, [1e-5])
