"""Dally's rules, one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nimble.cluster import Job, Options, Profile, grid, simulate
from nimble.cluster.policies.dally import Dally, _remember
from nimble.cluster.record import What

QUIET = Profile("quiet", 1.0, ())
LEASE = 100.0


def job(i: int, gpus: int, seconds: int, at: float = 0.0, profile: Profile = QUIET) -> Job:
    return Job(i, f"j{i}", at, gpus, gpus, seconds, profile)


def starts(result, i: int) -> list[tuple[float, str]]:
    events = result.record.of_job(i)
    return [(e.at_s, e.reason.code) for e in events if e.what is What.START]


def run(topology, jobs, **more):
    policy = Dally(lease_s=LEASE, **more)
    return simulate(topology, jobs, policy, Options(invariants=True, restart_policy=True))


def test_a_job_wider_than_a_machine_does_not_wait_for_one():
    spread = [job(i, 1, 50_000) for i in range(4)]
    result = run(grid((1, 4, 2)), [*spread, job(9, 4, 10, at=10.0)], rack=6.0, network=12.0)
    assert starts(result, 9) == [(10.0, "fits_rack")]


def fragmented(at: float = 10.0) -> list[Job]:
    """On four machines of two GPUs: each keeps one busy for long, for jobs that rank first."""
    pairs = [replace(job(i, 1, 40_000 if i % 2 else 5), priority=1) for i in range(8)]
    return [*pairs, job(20, 2, 10, at=at)]


def test_after_the_rack_timer_it_takes_a_rack():
    result = run(grid((2, 2, 2)), fragmented(), rack=6.0, network=12.0)
    ((at, code),) = starts(result, 20)
    assert code == "rack_timer"
    assert at == pytest.approx(10 + 6 * LEASE, abs=LEASE / 30)


def test_after_the_network_timer_it_goes_anywhere():
    result = run(grid((4, 1, 2)), fragmented(), rack=6.0, network=12.0)
    ((at, code),) = starts(result, 20)
    assert code == "network_timer"
    assert at == pytest.approx(10 + 12 * LEASE, abs=LEASE / 30)


def test_without_timers_it_takes_what_is_free():
    result = run(grid((4, 1, 2)), fragmented(), rack=0.0, network=0.0)
    assert starts(result, 20)[0][0] == 10.0


def test_a_lease_that_ends_goes_to_a_job_that_was_slowed_more():
    # Both fill the machine; the second is new, so it ranks first when the first lease ends.
    result = run(grid((1, 2)), [job(0, 2, 1000), job(1, 2, 1000, at=10.0)])
    assert starts(result, 1)[0] == (LEASE, "fits_machine")
    stops = [e for e in result.record.of_job(0) if e.what is What.STOP]
    assert (stops[0].at_s, stops[0].reason.code) == (LEASE, "lease_ended")
    # Equally (un)slowed jobs then stay: ranks go by score, then by who began earlier.
    assert result.preemptions.sum() < 2 * 2000 / LEASE


def test_leases_cost_nothing_while_nobody_waits():
    result = run(grid((1, 2)), [job(0, 1, 100_000), job(1, 1, 100_000)])
    assert result.decisions == 2  # both come together, and end together
    assert result.preemptions.sum() == 0


def test_the_network_slowed_job_ranks_first():
    view = None
    policy = Dally()

    class State:
        since = 0.0

        def __init__(self, done, run_s):
            self.done, self.run_s, self.ideal_s = done, run_s, 100.0
            self.job = job(0, 1, 100)

    fast, slowed, new = State(50.0, 50.0), State(50.0, 200.0), State(0.0, 0.0)
    assert policy.rank(new, view) < policy.rank(slowed, view) < policy.rank(fast, view)
    assert policy.rank(fast, view)[0] == 1.0
    assert policy.rank(slowed, view)[0] == 0.25


def test_the_tuner_follows_the_delays_of_jobs_of_the_same_demand():
    policy = Dally(lease_s=10.0, history=24)
    memory = policy.start()
    assert policy.timer(memory, 1, 4, 0.0) == 6
    assert policy.timer(memory, 2, 4, 0.0) == 12
    for leases in (8.0, 10.0, 12.0):
        _remember(memory["machine"], 4, 100.0, leases)
    # mean 10, standard deviation 1.63: 13.3 leases, rounded up.
    assert policy.timer(memory, 1, 4, 100.0) == 14
    assert policy.timer(memory, 1, 8, 100.0) == 6
    _remember(memory["machine"], 4, 150.0, 1000.0)
    assert policy.timer(memory, 1, 4, 150.0) == 20  # at most 0.8 x 24, rounded up
    # Older than 24 leases: forgotten.
    assert policy.timer(memory, 1, 4, 389.9) == 20
    assert policy.timer(memory, 1, 4, 390.1) == 6


def test_leases_end_together_so_that_a_gang_finds_its_gpus():
    singles = [job(0, 1, 5000), job(1, 1, 5000, at=50.0)]
    gang = job(2, 2, 10, at=60.0)
    assert starts(run(grid((1, 2)), [*singles, gang]), 2)[0] == (200.0, "fits_machine")
    # One by one they are too few, ever.
    assert starts(run(grid((1, 2)), [*singles, gang], tick_s=1.0), 2)[0][0] > 5000
