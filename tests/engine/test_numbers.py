"""Dtypes, complex and special numbers, and autocast."""

import pytest
import torch
from torch import nn

import nimble


def same(model, *args, **kwargs):
    """Compile, call twice, compare results, strides and aliasing with eager."""
    engine = nimble.compile(model, args, kwargs)
    for _ in range(2):
        torch.testing.assert_close(engine(*args, **kwargs), model(*args, **kwargs))
    return engine


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
)
def test_dtypes(dtype):
    x = torch.tensor([[0, 1, 2], [1, 0, 1]]).to(getattr(torch, dtype))
    same(lambda x: (x.logical_not(), torch.cat([x, x]).flip(0), x.sum(0), x == x[0]), x)


def test_complex_numbers_conjugated_lazily():
    x = torch.randn(3, 3, dtype=torch.complex64)
    same(lambda x: (x.conj() @ x, x.conj().real, torch.view_as_real(x)), x)


def test_autocast_inside_the_model_and_around_the_call():
    layer, x = nn.Linear(8, 8), torch.randn(2, 8)

    def model(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        return y, layer(x)

    with torch.no_grad():
        same(model, x)
        engine = nimble.compile(layer, (x,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert engine(x).dtype is torch.bfloat16
        assert engine(x).dtype is torch.float32


def test_inference_mode():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.inference_mode():
        engine = nimble.compile(model, (x,))
        torch.testing.assert_close(engine(x), model(x))


def test_integer_division_nan_and_infinity():
    same(lambda x: (x / 0, x * 0.5, x.clamp(max=float("inf"))), torch.tensor([1.0, -1, 2]))


def test_zeros_of_either_sign_in_one_chain():
    (result,) = nimble.compile(lambda x: x.clamp(min=0.0) * -0.0, (torch.ones(1),))(torch.ones(1))
    assert str(result.item()) == "-0.0"
