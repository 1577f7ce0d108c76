"""Strided values as boxes, against the sets of their bytes."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from interleavings import elements

from nimble.graph import DType, Role, Value
from nimble.graph.regions import (
    boxes,
    common,
    covered,
    has_no_gaps,
    overlapping,
    overlaps_itself,
)

NHWC = (96, 1, 24, 6)


def value(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Value:
    return Value(0, "v", Role.INTERMEDIATE, DType.INT16, shape, strides, None, offset)


@st.composite
def strided(draw: st.DrawFn) -> Value:
    strides = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 12]), max_size=3)))
    shape = tuple(draw(st.integers(1, 6)) for _ in strides)
    return value(shape, strides, 2 * draw(st.integers(0, 8)))


@example([value((4,), (1,), offset=2), value((2,), (2,))])
@settings(max_examples=400, deadline=None)
@given(st.lists(strided(), min_size=2, max_size=4))
def test_boxes_say_the_truth_about_bytes(values: list[Value]) -> None:
    found = boxes(values)
    known = [(v, box) for v, box in zip(values, found, strict=True) if box is not None]
    bytes_ = [set(elements(v)) for v, _ in known]
    clash = overlapping([box for _, box in known]) if len(known) > 1 else None
    if clash is not None:
        assert bytes_[clash[0]] & bytes_[clash[1]]
    else:
        assert sum(map(len, bytes_)) == len(set().union(*bytes_))
    if known:
        (_, target), *others = known
        assert covered(target, [box for _, box in others]) == (
            bytes_[0] <= set().union(*bytes_[1:])
        )


@settings(max_examples=400, deadline=None)
@given(st.lists(strided(), min_size=2, max_size=2))
def test_boxes_share_as_many_bytes_as_are_counted(values: list[Value]) -> None:
    a, b = values
    if all(box is not None for box in boxes(values)):
        assert common(a, b) == len(set(elements(a)) & set(elements(b)))


@settings(max_examples=200, deadline=None)
@given(strided())
def test_dense_values_have_no_gaps_and_sound_ones_no_shared_bytes(v: Value) -> None:
    found = list(elements(v))
    if has_no_gaps(v):
        assert sorted(set(found)) == list(range(v.offset, v.offset + v.span))
    if not overlaps_itself(v):
        assert len(set(found)) == len(found)


def test_slices_of_channels_tiles_of_rows_and_flat_views_are_boxes() -> None:
    whole = value((1, 6, 4, 4), NHWC)
    channels = [value((1, 2, 4, 4), NHWC, offset=2 * c) for c in (0, 2, 4)]
    rows = [value((1, 2, 2, 4), NHWC, offset=2 * (c + r * 24)) for c in (0, 2, 4) for r in (0, 2)]
    flat = value((96,), (1,))
    for parts in (channels, rows):
        found = [box for box in boxes([whole, flat, *parts]) if box is not None]
        assert len(found) == 2 + len(parts)
        assert overlapping(found[2:]) is None
        assert covered(found[0], found[2:])
        assert covered(found[1], found[2:])
        assert not covered(found[0], found[3:])
