"""Convolutions of channels-last images, whole and in tiles, against PyTorch in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import couples, program, run
from torch import Tensor

PANEL = 16


def pack(weight: Tensor, groups: int) -> Tensor:
    """[group][panel][tap][channel][16], zeros where a panel is not full."""
    out, channels, *kernel = weight.shape
    padded = -(out // groups) % PANEL
    split = weight.reshape(groups, out // groups, channels, *kernel)
    split = torch.nn.functional.pad(split, (0, 0) * (len(kernel) + 1) + (0, padded))
    panels = split.reshape(groups, -1, PANEL, channels, *kernel)
    return panels.permute(0, 1, 4, 5, 3, 2).contiguous()


def image(t: Tensor) -> list[int]:
    return [t.stride(0), t.stride(2), t.stride(3)]


def convolve(
    x, w, b, y, *, stride, padding, dilation, groups, rows=None, panels=None, add=None, clamp=None,
    tail=(), extra=(), floats=(),
):  # fmt: skip
    """Into `y`: rows [first, last) of the output, or all of it."""
    depthwise = groups == x.shape[1] == w.shape[0] and groups > 1
    out = w.shape[0] // groups
    channels = w.shape[0] if depthwise else out
    first, last = panels or (0, -(-channels // PANEL))
    top, bottom = rows or (0, y.shape[2])
    packed = w.permute(2, 3, 1, 0).contiguous() if depthwise else pack(w, groups)
    together, dtype = 1, "float32"
    if x.dtype is torch.bfloat16:
        packed, together, dtype = couples(packed), 2, "bfloat16"
    ints = [x.shape[0], x.shape[2], x.shape[3], top, bottom, y.shape[3]]
    ints += [groups, w.shape[1] // together, out, first, last, *([channels] if depthwise else ())]
    ints += [*w.shape[2:], *stride, *dilation, *padding]
    ints += [
        *(n // together for n in image(x)),
        *image(y),
        int(b is not None),
        int(add is not None),
    ]
    ints += [*(image(add) if add is not None else (0, 0, 0)), int(clamp is not None)]
    operands = [y[:, :, top:], x, packed]
    operands += [t for t in (b, None if add is None else add[:, :, top:]) if t is not None]
    kernel = "depthwise" if depthwise else "convolution"
    run(f"{kernel}.{dtype}", [*operands, *extra], [*ints, *tail], [*(clamp or ()), *floats])


def channels_last(*shape: int, wider: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    whole = torch.randn(shape[0], shape[1] + wider, *shape[2:]).to(dtype)
    whole = whole.contiguous(memory_format=torch.channels_last)
    return whole[:, wider:]


sizes = st.integers(1, 3)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 2, 9]), st.sampled_from([1, 2, 3, 8, 17, 33, 34]),
    st.sampled_from([1, 4, 8, 16, 24, 40]),
    st.integers(1, 17), st.integers(1, 17), st.sampled_from([1, 2, 3, 5, 7]),
    st.sampled_from([1, 2, 3, 5, 7]), st.integers(1, 3), st.integers(1, 2), st.integers(0, 3),
    st.sampled_from(["plain", "groups", "depthwise"]), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.sampled_from([None, "silu", "tanh"]), st.integers(0, 100),
)  # fmt: skip
def test_any_convolution(
    n, ci, co, h, w, kh, kw, stride, dilation, padding, kind, biased, added, clamped, narrow,
    function, seed,
):  # fmt: skip
    torch.manual_seed(seed)
    groups = {"plain": 1, "groups": 2, "depthwise": ci}[kind]
    if kind == "groups":
        ci, co = 2 * ci, 2 * co
    if kind == "depthwise":
        co = ci
    if h + 2 * padding < dilation * (kh - 1) + 1 or w + 2 * padding < dilation * (kw - 1) + 1:
        return
    x = channels_last(n, ci, h, w, wider=seed % 2)
    weight = torch.randn(co, ci // groups, kh, kw)
    if narrow and ci // groups % 2 == 0:
        x = channels_last(n, ci, h, w, wider=seed % 2 * 2, dtype=torch.bfloat16)
        weight = weight.to(torch.bfloat16).float()
    bias = torch.randn(co) if biased else None
    options = {
        "stride": (stride, stride), "padding": (padding, padding),
        "dilation": (dilation, dilation), "groups": groups,
    }  # fmt: skip
    expected = torch.nn.functional.conv2d(
        x.double(), weight.double(), None if bias is None else bias.double(), **options
    )
    y = channels_last(*expected.shape, wider=seed % 3)
    add = channels_last(*expected.shape) if added else None
    if add is not None:
        expected = expected + add
    clamp = (-0.5, 1.0) if clamped else None
    if clamp:
        expected = expected.clamp(*clamp)
    tail = [0, *program((function, 1, (0,)))] if function else ()
    if function:
        expected = {"silu": torch.nn.functional.silu, "tanh": torch.tanh}[function](expected)
    half = y.shape[2] // 2
    for rows in ((0, half), (half, y.shape[2])):
        convolve(x, weight, bias, y, **options, rows=rows, add=add, clamp=clamp, tail=tail)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)


def test_panels_are_tiles():
    x, weight = channels_last(1, 8, 5, 5), torch.randn(40, 8, 3, 3)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    y = channels_last(1, 40, 5, 5)
    for panels in ((0, 1), (1, 3)):
        convolve(x, weight, None, y, **options, panels=panels)
    torch.testing.assert_close(
        y, torch.nn.functional.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("images", [1, 7])
@pytest.mark.parametrize("depthwise", [False, True])
def test_a_tail_of_any_program(depthwise, images):
    groups = 24 if depthwise else 1
    x, weight = channels_last(images, 24, 6, 6), torch.randn(24, 24 // groups, 3, 3)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    y = channels_last(images, 24, 6, 6)
    scale = torch.randn(24)
    tail = [1, 0, 0, 1, *program(("silu", 3, (0,)), ("mul", 2, (3, 1)))]
    convolve(x, weight, None, y, **options, tail=tail, extra=[scale])
    eager = torch.nn.functional.conv2d(x, weight, padding=1, groups=groups)
    expected = torch.nn.functional.silu(eager) * scale.view(1, -1, 1, 1)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


def test_nan_stays_nan():
    x = channels_last(1, 4, 3, 3)
    x[0, 0, 1, 1] = float("nan")
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    y = channels_last(1, 16, 3, 3)
    convolve(x, torch.randn(16, 4, 1, 1), None, y, **options, clamp=(0.0, 6.0))
    assert y[0, :, 1, 1].isnan().all()
    assert not y[0, :, 0, 0].isnan().any()


def test_what_is_malformed_is_refused():
    x, y = channels_last(1, 4, 3, 3), channels_last(1, 16, 3, 3)
    with pytest.raises(ValueError, match="panel"):
        convolve(
            x, torch.randn(16, 4, 1, 1), None, y, stride=(1, 1), padding=(0, 0), dilation=(1, 1),
            groups=1, panels=(0, 5),
        )  # fmt: skip
