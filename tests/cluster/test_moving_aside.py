"""dally+ makes room for a gang by moving small jobs, where GPUs are free but scattered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nimble.cluster import Job, Options, Profile, grid, simulate
from nimble.cluster.policies.dally_plus import DallyPlus
from nimble.cluster.record import What

TALKS = Profile("talks", 0.1, (1_000_000_000,))
LEASE = 100.0


def scattered(checkpoint_s: float) -> list[Job]:
    """Two machines of four GPUs, each with two busy for long; then a gang of four comes."""
    singles = [
        Job(i, f"s{i}", float(i), 1, 1, 400_000 if i % 4 < 2 else 100, TALKS, checkpoint_s)
        for i in range(8)
    ]
    return [*singles, Job(9, "gang", 500.0, 4, 4, 1000, TALKS)]


def run(jobs: list[Job], **options):
    return simulate(grid((1, 2, 4)), jobs, DallyPlus(lease_s=LEASE), Options(**options))


def events(result, job: int, what: What):
    return [event for event in result.record.of_job(job) if event.what is what]


def test_small_jobs_move_aside_and_the_gang_starts_at_once_inside_a_machine():
    result = run(scattered(10.0), invariants=True, restart_policy=True)
    (start,) = events(result, 9, What.START)
    assert (start.at_s, start.reason.code, len(start.placement)) == (500.0, "made_room", 1)
    moves = [event for i in range(8) for event in events(result, i, What.MOVE)]
    assert [event.reason.code for event in moves] == ["moved_aside"] * 2
    assert result.overhead_s.sum() == pytest.approx(20.0)
    assert not any(events(result, i, What.STOP) for i in range(8))


def test_nobody_moves_for_more_than_a_lease_of_checkpoints():
    result = run(scattered(LEASE))
    assert not any(events(result, i, What.MOVE) for i in range(8))


def test_a_job_that_has_just_begun_is_left_where_it_is():
    jobs = [replace(job, submit_s=20.0) if job.id == 9 else job for job in scattered(1.0)]
    result = run(jobs)
    (start,) = events(result, 9, What.START)
    assert start.at_s >= LEASE
