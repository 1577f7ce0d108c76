"""The simulator jumps from event to event; a clock that ticks every second must see the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimble.cluster import Job, Options, Profile, grid, simulate
from nimble.cluster.policies.fifo import Fifo

SECOND = Profile("one_second", 1.0, ())
"""Computes for a second and sends nothing, so that placement costs nothing."""


@st.composite
def traces(draw):
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.sampled_from([1, 1, 2, 3, 4, 8]), st.integers(1, 25)),
            min_size=1, max_size=25,
        )
    )  # fmt: skip
    return [
        Job(place, f"job{place}", float(submit), gpus, gpus, seconds, SECOND)
        for place, (submit, gpus, seconds) in enumerate(sorted(rows))
    ]


def ticking(jobs, gpus, backfill):
    """(start, end) of every job under FIFO, one second at a time."""
    left = {job.id: job.iterations for job in jobs}
    start, end, running, now = {}, {}, [], 0
    while len(end) < len(jobs):
        for job in [job for job in running if left[job.id] == 0]:
            end[job.id] = now
            running.remove(job)
        for job in jobs:
            if job.submit_s <= now and job.id not in start:
                if sum(other.gpus_max for other in running) + job.gpus_max <= gpus:
                    start[job.id] = now
                    running.append(job)
                elif not backfill:
                    break
        for job in running:
            left[job.id] -= 1
        now += 1
    return [(start[job.id], end[job.id]) for job in jobs]


@pytest.mark.parametrize("backfill", [False, True])
@settings(max_examples=60, deadline=None)
@given(jobs=traces(), shape=st.sampled_from([(1, 1, 8), (1, 2, 4), (2, 2, 4)]))
def test_fifo_starts_and_ends_every_job_in_the_same_second(backfill, jobs, shape):
    topology = grid(shape)
    found = simulate(topology, jobs, Fifo(backfill), Options(contention=False))
    starts, ends = zip(*ticking(jobs, topology.gpus, backfill), strict=True)
    assert found.first_start_s.tolist() == pytest.approx(starts)
    assert found.finish_s.tolist() == pytest.approx(ends)
