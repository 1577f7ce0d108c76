"""Kernels that only training needs: statistics of channels, gradients of weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import run
from torch.nn.grad import conv2d_weight

LAYOUTS = (torch.contiguous_format, torch.channels_last)


def steps(x):
    return [x.stride(0), x.stride(1), x.stride(3)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 9),
    st.sampled_from(LAYOUTS),
    st.sampled_from((0.0, 3.0, -1000.0)),
    st.integers(0, 2**32),
)
def test_moments(batch, channels, side, layout, center, seed):
    torch.manual_seed(seed)
    x = (torch.randn(batch, channels, side, side) + center).to(memory_format=layout)
    mean, variance = torch.empty(2, channels)
    ints = [batch, channels, side * side, *steps(x)]
    run("moments.float32", [mean, variance, x], ints)
    exact = x.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.double(), exact.mean(1), rtol=1e-6, atol=1e-6)
    expected = exact.var(1, correction=0)
    torch.testing.assert_close(variance.double(), expected, rtol=1e-5, atol=1e-6)


def test_moments_of_many_channels():
    x = torch.randn(3, 2100, 2, 2).to(memory_format=torch.channels_last)
    mean, variance = torch.empty(2, 2100)
    run("moments.float32", [mean, variance, x], [3, 2100, 4, *steps(x)])
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 9),
    st.sampled_from(LAYOUTS),
    st.sampled_from(LAYOUTS),
    st.integers(0, 2**32),
)
def test_gradient_sums(batch, channels, side, one, other, seed):
    torch.manual_seed(seed)
    gradient = torch.randn(batch, channels, side, side).to(memory_format=one)
    x = torch.randn(batch, channels, side, side).to(memory_format=other)
    mean = torch.randn(channels)
    total, product = torch.empty(2, channels)
    ints = [batch, channels, side * side, *steps(x), *steps(gradient)]
    run("gradient_sums.float32", [total, product, x, gradient, mean], ints)
    far = x.double() - mean.double().view(-1, 1, 1)
    exact = gradient.double().sum((0, 2, 3)).float()
    torch.testing.assert_close(total, exact, rtol=1e-5, atol=1e-5)
    expected = (far * gradient).sum((0, 2, 3)).float()
    torch.testing.assert_close(product, expected, rtol=1e-5, atol=1e-4)


def weights(draw, depthwise):
    batch, out = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    inside = 1 if depthwise else draw(st.integers(1, 40))
    sizes = [draw(st.integers(1, 8) | st.sampled_from((13, 19))) for _ in range(2)]
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    stride, dilation = ([draw(st.integers(1, 2)) for _ in range(2)] for _ in range(2))
    padding = [draw(st.integers(0, 2)) for _ in range(2)]
    return batch, out, inside, sizes, kernel, stride, dilation, padding


@pytest.mark.parametrize("depthwise", [False, True])
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_gradients_of_weights(depthwise, data):
    batch, out, inside, sizes, kernel, stride, dilation, padding = weights(data.draw, depthwise)
    results = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, d, p in zip(sizes, kernel, stride, dilation, padding, strict=True)
    ]
    if min(results) < 1:
        return
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    channels = out if depthwise else inside
    x = torch.randn(batch, channels, *sizes).to(memory_format=torch.channels_last)
    gradient = torch.randn(batch, out, *results).to(memory_format=torch.channels_last)
    if channels == 1 or out == 1:  # PyTorch does not care for the strides of one channel.
        x, gradient = (
            t.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for t in (x, gradient)
        )
    shape = (out, inside, *kernel)
    layout = data.draw(st.sampled_from(LAYOUTS))
    result = torch.full(shape, float("nan")).to(memory_format=layout)
    ints = [batch, out, inside]
    for d in range(2):
        ints += [results[d], sizes[d], kernel[d], stride[d], dilation[d], padding[d]]
    for image in (gradient, x):
        ints += [image.stride(0), image.stride(2), image.stride(3)]
    name = "depthwise_gradient" if depthwise else "weight_gradient"
    run(f"{name}.float32", [result, gradient, x], [*ints, *result.stride()])
    groups = out if depthwise else 1
    expected = conv2d_weight(
        x.double(), shape, gradient.double(), stride, padding, dilation, groups
    )
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("channels", "kernel"), [(48, 3), (3, 3), (3, 7), (1, 5), (2, 11)])
def test_a_large_gradient_of_weights_is_made_block_by_block(channels, kernel):
    x = torch.randn(6, channels, 40, 40).to(memory_format=torch.channels_last)
    gradient = torch.randn(6, 20, 20, 20).to(memory_format=torch.channels_last)
    result = torch.empty(20, channels, kernel, kernel)
    around = kernel // 2
    ints = [6, 20, channels, *(20, 40, kernel, 2, 1, around) * 2]
    for image in (gradient, x):
        ints += [image.stride(0), image.stride(2), image.stride(3)]
    run("weight_gradient.float32", [result, gradient, x], [*ints, *result.stride()])
    expected = conv2d_weight(x.double(), result.shape, gradient.double(), 2, around)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "ints", "why"),
    [
        ("moments.float32", [0, 1, 1, 1, 1, 1], "batch"),
        ("moments.float32", [1, 1, 1, 1, 1], "pixel stride"),
        ("depthwise_gradient.float32", [1, 4, 2, *[1] * 22], "one input channel"),
        ("weight_gradient.float32", [1, 4, 2, *[1] * 30], "ints"),
    ],
)
def test_what_is_malformed_is_refused(kernel, ints, why):
    with pytest.raises(ValueError, match=why):
        run(kernel, [torch.zeros(4) for _ in range(3)], ints)
