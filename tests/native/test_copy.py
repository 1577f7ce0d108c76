"""Strided copies, padding and filling."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import DTYPES, run
from torch import Tensor

BYTES = {torch.uint8: 1, torch.int16: 2, torch.int32: 4, torch.float32: 4, torch.int64: 8}


def copy(out: Tensor, x: Tensor, flip: list[int] | None = None) -> None:
    steps, start = list(out.stride()), 0
    for dim in flip or ():
        start += steps[dim] * (x.shape[dim] - 1)
        steps[dim] = -steps[dim]
    ints = [out.element_size(), x.dim(), *x.shape, *steps, *x.stride(), start]
    run("copy_strided", [out, x], ints)


def numbers(shape: list[int], dtype: torch.dtype) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1).to(dtype).view(shape)


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.sampled_from([0, 1, 2, 5, 8, 9, 17, 33]), max_size=4),
    dtype=st.sampled_from(list(BYTES)),
    data=st.data(),
)
def test_copies(shape: list[int], dtype: torch.dtype, data: st.DataObject) -> None:
    def any_layout(fill: bool) -> Tensor:
        order = data.draw(st.permutations(range(len(shape))))
        gap = data.draw(st.sampled_from([0, 0, 1]))
        sizes = [shape[d] + gap for d in order]
        base = numbers(sizes, dtype) if fill else torch.zeros(sizes, dtype=dtype)
        base = base[tuple(slice(gap, None) for _ in sizes)]
        return base.permute([order.index(d) for d in range(len(shape))])

    x, out = any_layout(True), any_layout(False)
    copy(out, x)
    assert torch.equal(out, x)


@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 64, 14, 14), (2, 20, 16, 16)])
def test_channels_last_and_back_into_a_slice(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    last = torch.empty(shape).to(memory_format=torch.channels_last)
    copy(last, x)
    assert torch.equal(last, x)
    wide = torch.zeros(shape[0], shape[1] + 5, *shape[2:])
    copy(wide[:, 3:-2], last)
    assert torch.equal(wide[:, 3:-2], x)
    assert wide[:, :3].count_nonzero() == 0
    assert wide[:, -2:].count_nonzero() == 0


def test_copies_that_repeat() -> None:
    x, out = torch.randn(5, 1, 3), torch.empty(5, 4, 3)
    copy(out, x.expand(5, 4, 3))
    assert torch.equal(out, x.expand(5, 4, 3))


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 8, 11]), min_size=1, max_size=4),
    channels_last=st.booleans(),
    data=st.data(),
)
def test_padding(shape: list[int], channels_last: bool, data: st.DataObject) -> None:
    pads = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in shape]
    x = torch.randn(shape)
    flat = [p for pair in reversed(pads) for p in pair]
    expected = F.pad(x, flat, value=-1.5)
    out = torch.zeros(expected.shape)
    if channels_last and len(shape) == 4:
        x, out = (t.to(memory_format=torch.channels_last) for t in (x, out))
    ints = [len(shape), *out.shape, *(a for a, _ in pads), *shape, *out.stride(), *x.stride()]
    run("pad.float32", [out, x], ints, [-1.5])
    assert torch.equal(out, expected)


@pytest.mark.parametrize("flip", [[], [1, 2]])
@pytest.mark.parametrize(("out", "channels"), [(32, 100), (48, 64), (16, 1025)])
def test_weights_in_panels(out: int, channels: int, flip: list[int]) -> None:
    """Forwards by output channels, backwards by input channels: rows lie far apart."""
    weights = torch.randn(out, channels, 3, 3)
    for w in (weights, weights.transpose(0, 1)[: channels // 16 * 16]):
        o, i, *steps = w.stride()
        shape = (w.shape[0] // 16, 3, 3, w.shape[1], 16)
        source = w.as_strided(shape, (16 * o, *steps, i, o))
        panels = torch.zeros(shape)
        copy(panels, source, flip)
        assert torch.equal(panels, source.flip(flip))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(dtype: torch.dtype) -> None:
    out = torch.zeros(4, 6, 5, dtype=dtype)
    part = out[1:3, ::2]
    run("fill", [part], [DTYPES[dtype], 3, *part.shape, *part.stride()], [3.0])
    expected = torch.zeros(4, 6, 5, dtype=dtype)
    expected[1:3, ::2] = 3
    assert torch.equal(out, expected)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 9, 16, 17]), min_size=1, max_size=5),
    data=st.data(),
)
def test_copies_backwards(shape: list[int], data: st.DataObject) -> None:
    x = numbers(shape, torch.float32)
    turn = data.draw(st.permutations(range(len(shape))))
    flip = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    source = x.permute(turn)
    out = torch.zeros(source.shape)
    copy(out, source, flip)
    assert torch.equal(out, source.flip(flip))


@pytest.mark.parametrize(
    ("kernel", "ints", "message"),
    [
        ("copy_strided", [3, 1, 4, 1, 1, 0], "elements of 1, 2, 4 or 8 bytes"),
        ("copy_strided", [4, 7], "dimensions 7"),
        ("copy_strided", [4, 1, 4, 1], "stride is missing"),
        ("pad.float32", [1, 4, 5], "padding 5"),
        ("pad.float32", [1, 4, 1, 4], "inner size 4, which is not between 0 and 3"),
    ],
)
def test_malformed_calls_are_refused(kernel: str, ints: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(kernel, list(torch.zeros(2, 8)), ints, [])
