"""Kernels in virtual time: cases worked out by hand, and what holds of every schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_graphs import dags

from nimble.devices.sim.run import Sharing, run
from nimble.devices.sim.times import Times
from nimble.errors import ScheduleError
from nimble.schedule.assignment import assign, concurrent
from nimble.schedule.order import Order


def taking(*kernels: tuple[float, float, float]) -> Times:
    """Kernels as (nanoseconds alone, share of the processors, share of the bandwidth)."""
    alone, processors, bandwidth = np.array(kernels, float).reshape(-1, 3).T
    return Times(alone, processors, bandwidth)


def test_a_stream_runs_its_kernels_one_after_the_other():
    starts, ends = run(taking((100, 1, 0), (50, 1, 0)), [(0, 1)], [], [0, 1], Sharing())
    assert (starts, ends) == ([0, 100], [100, 150])


def test_two_kernels_that_need_half_a_gpu_each_run_beside_each_other():
    _, ends = run(taking((100, 0.5, 0), (100, 0.5, 0)), [(0,), (1,)], [], [0, 1], Sharing())
    assert ends == [100, 100]


def test_a_kernel_that_needs_all_of_it_makes_the_next_wait():
    _, ends = run(taking((100, 1, 0), (100, 1, 0)), [(0,), (1,)], [], [0, 1], Sharing())
    assert ends == [100, 200]


def test_what_is_left_of_the_gpu_goes_to_those_launched_later():
    # The second gets 0.4 of the 0.8 it can use, so half its speed, until the first has ended: by
    # then half of it is done, and the rest takes 50 more.
    _, ends = run(taking((100, 0.6, 0), (100, 0.8, 0)), [(0,), (1,)], [], [0, 1], Sharing())
    assert ends == pytest.approx([100, 150])


def test_the_launch_order_decides_who_comes_first():
    kernels = taking((100, 1, 0), (10, 1, 0))
    assert run(kernels, [(0,), (1,)], [], [0, 1], Sharing())[1] == [100, 110]
    assert run(kernels, [(0,), (1,)], [], [1, 0], Sharing())[1] == [110, 10]


def test_processors_and_bandwidth_are_shared_each_for_itself():
    mixed = taking((100, 0.9, 0.1), (100, 0.1, 0.9))
    assert run(mixed, [(0,), (1,)], [], [0, 1], Sharing())[1] == pytest.approx([100, 100])
    # The second gets a ninth of the bandwidth that it can use, until the first has ended.
    alike = taking((100, 0.1, 0.9), (100, 0.1, 0.9))
    _, ends = run(alike, [(0,), (1,)], [], [0, 1], Sharing())
    assert ends == pytest.approx([100, 100 + 100 * 8 / 9])


def test_kernels_beside_each_other_hinder_each_other():
    # Each has the other beside it with half of the GPU: 1 + 0.4 * 0.5 times as long.
    kernels = taking((100, 0.5, 0), (100, 0.5, 0))
    _, ends = run(kernels, [(0,), (1,)], [], [0, 1], Sharing(interference=0.4))
    assert ends == pytest.approx([120, 120])


def test_a_wait_takes_time_and_a_stream_does_not():
    kernels = taking((100, 0.1, 0), (30, 0.1, 0), (10, 0.1, 0))
    starts, _ = run(kernels, [(1, 2), (0,)], [(2, 0)], [0, 1, 2], Sharing(wait=20))
    assert starts[2] == 120
    starts, _ = run(kernels, [(0, 2), (1,)], [(2, 1)], [0, 1, 2], Sharing(wait=20))
    assert starts[2] == 120  # The wait is over at once, but not for nothing.
    starts, _ = run(kernels, [(0, 1, 2)], [], [0, 1, 2], Sharing(wait=20))
    assert starts[2] == 130


def test_a_stream_comes_to_its_waits_one_after_the_other():
    kernels = taking((100, 0.1, 0), (30, 0.1, 0), (10, 0.1, 0))
    waits = [(2, 0), (2, 1)]
    starts, _ = run(kernels, [(0,), (1,), (2,)], waits, [0, 1, 2], Sharing(wait=20))
    assert starts[2] == 120  # Done with the first wait at 50, and at 100 with the other.
    kernels = taking((100, 0.1, 0), (95, 0.1, 0), (10, 0.1, 0))
    starts, _ = run(kernels, [(0,), (1,), (2,)], waits, [0, 1, 2], Sharing(wait=20))
    assert starts[2] == 95 + 20 + 20


def test_a_graph_starts_its_kernels_one_by_one():
    starts, _ = run(
        taking(*[(100, 0.1, 0)] * 3), [(0,), (1,), (2,)], [], [2, 0, 1], Sharing(node=5)
    )
    assert starts == [5, 10, 0]


def test_a_chain_of_small_kernels_is_as_slow_as_the_host_that_launches_them():
    kernels = taking(*[(2.0, 0.01, 0)] * 100)
    issued = [10.0 * (place + 1) for place in range(100)]
    _, ends = run(kernels, [tuple(range(100))], [], range(100), Sharing(), issued)
    assert ends[-1] == 1002
    _, ends = run(kernels, [tuple(range(100))], [], range(100), Sharing())
    assert ends[-1] == 200


def test_streams_that_wait_for_each_other_are_refused():
    with pytest.raises(ScheduleError, match="deadlock"):
        run(taking((1, 0, 0), (1, 0, 0)), [(0,), (1,)], [(0, 1), (1, 0)], [0, 1], Sharing())


@st.composite
def loads(draw: st.DrawFn) -> tuple[Order, Times]:
    before = draw(dags(8))
    share = st.floats(0.01, 1.0)
    kernel = st.tuples(st.floats(1.0, 100.0), share, share)
    return Order.of(before), taking(*(draw(kernel) for _ in before))


@settings(max_examples=200, deadline=None)
@given(loads(), st.booleans(), st.sampled_from([0.0, 3.0]), st.sampled_from([0.0, 0.5]))
def test_order_waits_and_bounds_hold(load, many, wait, interference):
    order, kernels = load
    assignment = concurrent(order) if many else assign(order, [order.sequence])
    sharing = Sharing(wait, 1.0, interference)
    launch = assignment.order.sequence
    starts, ends = run(kernels, assignment.streams, assignment.waits, launch, sharing)
    close = 1e-6 * max(ends)
    for stream in assignment.streams:
        for earlier, later in itertools.pairwise(stream):
            assert ends[earlier] <= starts[later] + close
    for task, on in assignment.waits:
        assert ends[on] + wait <= starts[task] + close
    for task, parents in enumerate(order.parents):
        for parent in parents:
            assert ends[parent] <= starts[task] + close
    longest = [0.0] * len(order)
    for task in order.sequence:
        before = max((longest[p] for p in order.parents[task]), default=0.0)
        longest[task] = before + kernels.alone[task]
        assert ends[task] - starts[task] >= kernels.alone[task] - close
    assert max(ends) >= max(longest) - close
    assert max(ends) >= kernels.work - close


@settings(max_examples=100, deadline=None)
@given(loads(), st.floats(1.0, 4.0))
def test_shorter_kernels_in_sequence_are_never_slower(load, factor):
    order, kernels = load
    quicker = Times(kernels.alone / factor, kernels.processors, kernels.bandwidth)
    ends = [
        max(run(k, [order.sequence], [], order.sequence, Sharing(node=0.5))[1])
        for k in (kernels, quicker)
    ]
    assert ends[1] <= ends[0] + 1e-9
