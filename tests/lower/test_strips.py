"""Strips of large images: the same numbers, every row once, in an order that keeps them close."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowered import graphs, run
from torch import nn

from nimble.compare import relative_error
from nimble.devices.cpu import supported
from nimble.graph import verify
from nimble.lower import cut, strips
from nimble.schedule import schedule


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    monkeypatch.setattr(strips, "_CACHE", 4096)
    monkeypatch.setattr(strips, "_STRIP", 8192)


def block(channels, kernel, stride, dilation=1):
    """As in MobileNet: wide in the middle."""
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 3 * channels, 1),
        nn.ReLU6(),
        nn.Conv2d(3 * channels, 3 * channels, kernel, stride, padding, dilation, 3 * channels),
        nn.ReLU6(),
        nn.Conv2d(3 * channels, channels, 1),
    )


def in_strips(model, x, workers):
    plain, lowered, _, tensors, inputs = graphs(model, (x,))
    costed = lowered.with_tasks(replace(task, cost=10**4) for task in lowered.tasks)
    found = verify(cut(costed, "strips", workers, supported))
    got = run(found, tensors, inputs, workers, in_order=True)
    assert relative_error(got, run(plain, tensors, inputs)) < 1e-3
    return found


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    workers=st.integers(1, 4),
    high=st.integers(16, 60),
    shapes=st.lists(
        st.tuples(st.sampled_from([1, 3, 5]), st.integers(1, 2), st.integers(1, 2)),
        min_size=1,
        max_size=3,
    ),
)
def test_strips_compute_the_same(workers, high, shapes):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), *(block(8, *shape) for shape in shapes))
    in_strips(model, torch.randn(1, 3, high, 12), workers)


def test_a_strip_goes_through_the_chain_before_the_next():
    found = in_strips(block(8, 3, 1), torch.randn(1, 8, 64, 12), 1)
    order = [task.name.split("/") for task in found.tasks if "/" in task.name]
    numbers = [int(number) for _, number in order]
    assert len({name for name, _ in order}) == 3
    assert numbers == sorted(numbers)
    assert max(numbers) > 4


def test_two_workers_wait_for_each_other_at_the_seam_only():
    found = in_strips(block(8, 3, 1), torch.randn(1, 8, 64, 12), 2)
    planned = schedule(found, streams=2, in_order=True)
    assert len(planned.streams) == 2
    assert len(planned.waits) <= 6


def test_what_others_read_too_is_not_cut():
    first, second = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 8, 3, padding=1)

    def run(x):
        y = torch.relu(first(x))
        return second(y).mean((2, 3)) + y.mean((2, 3))[:, :8]

    found = in_strips(run, torch.randn(1, 3, 64, 12), 1)
    assert not any("/" in task.name for task in found.tasks)
