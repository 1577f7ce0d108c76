"""Scheduling overhead: what a replay takes beyond the kernels on its critical path, and a call
beyond the replay."""

import pytest
import torch

import nimble
from nimble.bench.overhead import critical, overhead, timer_ns
from nimble.observe.timeline import Bar, Timeline


def timeline(*bars, waits=()):
    """Bars as (stream, start, stop), in order of their start."""
    made = tuple(Bar(f"t{i}", "op", "", s, s, a, b) for i, (s, a, b) in enumerate(bars))
    return Timeline("drawn", 2, made, waits)


def test_gaps_along_a_stream_are_not_on_the_critical_path():
    path = critical(timeline((0, 0, 10), (0, 15, 20), (0, 90, 100)))
    assert (path.ns, path.tasks) == (25, 3)


def test_streams_run_side_by_side_unless_one_waits():
    bars = ((0, 0, 100), (1, 0, 30), (1, 110, 150))
    assert critical(timeline(*bars)).ns == 100
    path = critical(timeline(*bars, waits=((0, 2),)))
    assert (path.ns, path.tasks) == (140, 2)


def test_nothing_has_no_critical_path():
    assert critical(timeline()).ns == 0


def test_looking_at_the_clock_costs_little_but_something():
    assert 0 < timer_ns() < 5_000


@pytest.fixture(params=[1, 2])
def workers(request):
    return request.param


def found(model, args, workers):
    engine = nimble.compile(model, args, workers=workers, progress=False)
    with torch.no_grad():
        return overhead(lambda: engine(*args), engine.plans[-1])


def test_a_call_of_next_to_nothing_is_mostly_overhead(workers):
    of = found(lambda x: x + 1, (torch.randn(1),), workers)
    replay_ms = of.ms / of.share
    assert of.ms + of.call_ms > 0.5 * (replay_ms + of.call_ms)
    assert 0 < of.ms < replay_ms < 1
    assert 0 < of.call_ms < 1


def test_a_call_of_long_kernels_is_mostly_kernels(workers):
    of = found(lambda x: x @ x @ x, (torch.randn(512, 512),), workers)
    assert of.share < 0.5
