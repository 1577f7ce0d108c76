"""Operators that have a kernel of our own get it, and compute what PyTorch computes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import agree, fell_back
from torch import nn
from torch.nn import functional as F


def native(model, *args):
    lowered, _ = agree(model, *args)
    assert not fell_back(lowered)
    return lowered


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_transposed_convolutions(data):
    dims = data.draw(st.sampled_from([1, 2]))
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(dims)]  # noqa: E731
    stride, dilation = draw(1, 3), draw(1, 2)
    kernel = [s + data.draw(st.integers(0, 2)) for s in stride]
    padding = [
        data.draw(st.integers(0, d * (k - 1))) for d, k in zip(dilation, kernel, strict=True)
    ]
    padding = [min(p, 2) for p in padding]
    more = [data.draw(st.integers(0, s - 1)) for s in stride]
    groups = data.draw(st.sampled_from([1, 2, 8]))
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d)[dims - 1](
        8, 8 if groups == 8 else 20, kernel, stride, padding, more, groups, True, dilation
    )
    size = [data.draw(st.integers(3, 7)) for _ in range(dims)]
    agree(nn.Sequential(layer, nn.ReLU()), torch.randn(2, 8, *size))


def test_a_transposed_convolution_is_several_ordinary_ones():
    lowered = native(nn.ConvTranspose2d(8, 16, 4, 2, 1), torch.randn(1, 8, 7, 5))
    assert [task.op for task in lowered.tasks].count("nimble.convolution") == 4


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 2, 1), (2, 0, 2), (3, 1, 1)])
def test_convolutions_of_sequences(groups, stride, padding, dilation):
    wide = 8 if groups == 8 else 16

    def layer(inside, out):
        return nn.Conv1d(inside, out, 5, stride, padding, dilation, groups)

    lowered = native(
        nn.Sequential(layer(8, wide), nn.ReLU(), layer(wide, wide), nn.Tanh()),
        torch.randn(2, 8, 60),
    )
    # Channels stay innermost between them, and the first activation is a convolution's end.
    assert len(lowered.tasks) == 4


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 1), (1, 2, 2)])
def test_convolutions_of_volumes(groups, stride, padding, dilation):
    layer = nn.Conv3d(8, 8, 3, stride, padding, dilation, groups)
    native(nn.Sequential(layer, nn.ReLU(), nn.Conv3d(8, 5, 1)), torch.randn(2, 8, 6, 7, 9))


@pytest.mark.parametrize("end", [nn.Identity(), nn.ReLU6(), nn.SiLU(), nn.Softplus()])
@pytest.mark.parametrize("inside", [1500, 3001])
def test_more_channels_than_a_cache_holds(end, inside):
    layer = nn.Conv2d(inside, 36, 1)

    def run(x, y):
        return end(layer(x) + torch.relu(y))

    native(run, torch.randn(2, inside, 9, 8), torch.randn(2, 36, 9, 8))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("high", [2, 16])
def test_windows_side_by_side(channels, high):
    native(nn.Conv2d(channels, 20, (high, 16), (high, 16)), torch.randn(2, channels, 32, 48))


@pytest.mark.parametrize("pads", [(1, 2, 0, 1), (0, 1, 0, 1)])
def test_a_convolution_takes_over_the_padding_before_it(pads):
    model = nn.Sequential(nn.ZeroPad2d(pads), nn.Conv2d(3, 8, 3, 2))
    lowered = native(model, torch.randn(1, 3, 9, 12))
    assert not any("pad" in task.op for task in lowered.tasks)


def test_padding_by_something_else_than_zeros_is_no_padding_of_a_convolution():
    model = nn.Sequential(nn.ConstantPad2d(1, 3.0), nn.Conv2d(3, 8, 3))
    assert "nimble.pad" in [task.op for task in native(model, torch.randn(1, 3, 9, 12)).tasks]


@pytest.mark.parametrize("shape", [(2, 12, 5, 7), (1, 12, 40), (3, 12), (1, 12, 3, 4, 5)])
def test_group_norms(shape):
    native(nn.Sequential(nn.GroupNorm(3, 12), nn.SiLU()), torch.randn(shape))


def test_group_norm_between_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 8, 3))
    assert len(native(model, torch.randn(1, 3, 12, 12)).tasks) <= 5


def test_instance_norm():
    native(nn.InstanceNorm2d(6, affine=True), torch.randn(1, 6, 8, 8))


class Spelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24))


class RMS(Spelled):
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Layer(Spelled):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return self.weight * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5))


@pytest.mark.parametrize(
    ("model", "op"),
    [(RMS(), "rms_norm"), (nn.RMSNorm(24, eps=1e-5), "rms_norm"), (Layer(), "layer_norm")],
)
def test_norms_that_are_spelled_out(model, op):
    lowered = native(model, torch.randn(2, 5, 24))
    assert [task.op for task in lowered.tasks] == [f"nimble.{op}"]


def test_the_mean_of_something_else_is_no_norm():
    lowered = native(lambda x, y: x * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1),
                     torch.randn(3, 8), torch.randn(3, 8))  # fmt: skip
    assert "nimble.rms_norm" not in [task.op for task in lowered.tasks]


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: torch.log_softmax(x * 3, 3),
        lambda x: torch.cumsum(x, 1),
        lambda x: x.amax((1, 3)),
        lambda x: x.amin(2, keepdim=True),
        lambda x: x.max(),
        lambda x: x.mean(),
        lambda x: x.sum(),
        lambda x: x.max(2),
        lambda x: x.min(-1, keepdim=True),
        lambda x: x.max(1)[1],
        lambda x: x.argmax(),
        lambda x: x.argmin(2, keepdim=True),
        lambda x: torch.topk(x, 3, 1),
        lambda x: torch.topk(x, 2, -1, largest=False),
        lambda x: F.pad(x, (1, 2, 0, 3), value=2.0),
        lambda x: torch.where(x > 0.2, x, -x),
        lambda x: x.masked_fill(torch.logical_and(x < 1, x.abs() >= 0.5), -3.0),
        lambda x: (x > 0).float() + x.bool().float(),
        lambda x: torch.logical_not(x == x.round()),
    ],
)
def test_along_dimensions_and_pointwise(run):
    native(run, torch.randn(2, 4, 6, 7))


@pytest.mark.parametrize(
    "run",
    [
        lambda x, i: x[:, i],
        lambda x, i: x[i - 2],
        lambda x, i: x.index_select(2, i.flatten()),
        lambda x, i: F.embedding(i, x[0]),
    ],
)
def test_rows_by_their_numbers(run):
    agree(run, torch.randn(4, 4, 5), torch.tensor([[0, 3], [1, 1]]))


def test_an_index_out_of_range_is_refused():
    lowered = native(lambda x, i: x[i], torch.randn(4, 5), torch.tensor([0, 3]))
    assert [task.op for task in lowered.tasks] == ["nimble.gather"]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("batch", "rows", "out"), [(3, 5, 40), (1, 30, 20), (1, 3, 70)])
def test_products_of_what_was_just_computed(batch, rows, out, turned):
    def run(a, b):
        product = torch.bmm(a.tanh(), (b.transpose(1, 2) if turned else b).contiguous())
        return torch.relu(product * 0.5)

    b = torch.randn(batch, *((out, 9) if turned else (9, out)))
    lowered = native(run, torch.randn(batch, rows, 9), b)
    assert [task.op for task in lowered.tasks].count("nimble.matmul") == 1


def test_attention_that_is_spelled_out():
    def run(q, k, v, mask):
        scores = (q @ k.transpose(-1, -2)) / 4 + mask
        return torch.softmax(scores.masked_fill(mask < -1, float("-inf")), -1) @ v

    q, k, v = (torch.randn(2, 4, 10, 16) for _ in range(3))
    native(run, q, k, v, torch.randn(10, 10).clamp(max=0.5))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "aligned"])
@pytest.mark.parametrize("size", [{"scale_factor": 2}, {"scale_factor": 0.7}, {"size": (9, 4)}])
def test_resampling(mode, size):
    layer = nn.Conv2d(3, 12, 1)
    how = {"mode": "bilinear", "align_corners": True} if mode == "aligned" else {"mode": mode}

    def run(x):
        return F.interpolate(torch.relu(layer(x)), **size, **how) * 2

    lowered = native(run, torch.randn(2, 3, 6, 7))
    assert "nimble.resample" in [task.op for task in lowered.tasks]


def test_adaptive_pooling():
    layer = nn.Conv2d(3, 12, 1)
    native(lambda x: F.adaptive_avg_pool2d(layer(x), (3, 2)) * 2, torch.randn(2, 3, 7, 5))


@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(2), nn.AvgPool2d(2, count_include_pad=False), nn.AdaptiveAvgPool2d(3)]
)
def test_pooling_whose_result_is_flattened(pool):
    native(
        nn.Sequential(nn.Conv2d(3, 12, 1), pool, nn.Flatten(), nn.ReLU()), torch.randn(2, 3, 6, 6)
    )


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_lstm(batch_first, bidirectional, bias):
    layer = nn.LSTM(
        12, 20, 2, bias=bias, batch_first=batch_first, bidirectional=bidirectional
    ).eval()
    x = torch.randn(3, 7, 12)
    lowered = native(lambda x: layer(x), x)
    assert len(lowered.tasks) <= (2 * (3 if not batch_first else 7) + 4) * 4
    state = torch.randn(2, (4 if bidirectional else 2), 7 if not batch_first else 3, 20)
    native(lambda x, h, c: layer(x, (h, c)), x, state[0], state[1])


def test_gru():
    native(nn.GRU(12, 20, 1).eval(), torch.randn(5, 2, 12))
