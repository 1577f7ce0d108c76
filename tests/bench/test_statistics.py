"""Medians, percentiles and bootstrap intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimble.bench.statistics import Ratio, Summary, quietest

times = st.lists(st.integers(1, 10**10), min_size=1, max_size=60)
ratios = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)


@given(times)
def test_a_summary_is_in_order(ns):
    summary = Summary.of(ns)
    assert min(ns) / 1e6 == pytest.approx(summary.minimum)
    assert summary.minimum <= summary.median * (1 + 1e-9)
    assert summary.median <= summary.p99 * (1 + 1e-9)
    assert summary.p99 <= max(ns) / 1e6 * (1 + 1e-9)
    assert summary.spread >= 0


@given(times, st.integers(2, 1000))
def test_a_slower_clock_scales_times_and_leaves_the_spread(ns, factor):
    one, other = Summary.of(ns), Summary.of([factor * t for t in ns])
    assert other.median == pytest.approx(factor * one.median)
    assert other.spread == pytest.approx(one.spread)


@given(ratios)
def test_the_interval_holds_the_median_and_lies_within_the_rounds(values):
    ratio = Ratio.of(values, resamples=200)
    assert min(values) <= ratio.low <= ratio.high <= max(values)
    assert ratio.low <= ratio.median * (1 + 1e-9)
    assert ratio.median <= ratio.high * (1 + 1e-9)


@given(ratios)
def test_the_same_rounds_give_the_same_interval(values):
    assert Ratio.of(values, resamples=50) == Ratio.of(values, resamples=50)


def test_equal_rounds_leave_no_doubt():
    assert Ratio.of([1.5] * 10) == Ratio(1.5, 1.5, 1.5)


def test_more_rounds_narrow_the_interval():
    few, many = Ratio.of([1.0, 2.0, 3.0] * 2), Ratio.of([1.0, 2.0, 3.0] * 50)
    assert many.high - many.low <= few.high - few.low


def test_disturbed_rounds_are_left_out():
    calm, busy = [10.0, 2.0, 7.0], [15.0, 6.0, 8.0]  # not all are slowed down alike
    rounds = [busy, calm, busy, busy, calm, busy, busy, calm, busy]
    assert quietest(list(zip(*rounds, strict=True)), fewest=2) == [1, 4, 7]


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=4, max_size=4), min_size=1, max_size=5))
def test_enough_rounds_stay(medians):
    chosen = quietest(medians, fewest=3)
    assert len(chosen) == len(set(chosen)) == 3
    assert len(quietest(medians, fewest=9)) == 4
