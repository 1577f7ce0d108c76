"""Random clusters, traces and policies with every invariant on; and bugs that must be caught."""

from __future__ import annotations

import random
from collections import Counter

import cluster_cases as cases
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from plain_fleet import PlainFleet

from nimble.cluster import Job, Options, Outage, grid, simulate
from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.dally import Dally
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.simulator import Simulation
from nimble.cluster.state import JobState, Writable, become
from nimble.errors import InvariantError


def made(name: str):
    """A policy with leases short enough to end within the random jobs' lives."""
    policy = POLICIES[name]()
    if hasattr(policy, "lease_s"):
        policy.lease_s, policy.tick_s = 60.0, 1.0
    return policy


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.full)])
def test_all_invariants_hold_on_random_runs(count):
    seen: Counter[str] = Counter()

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, phases=[Phase.generate]
    )
    @given(st.integers(0, 2**48), st.sampled_from(sorted(POLICIES)))
    def check(seed: int, name: str) -> None:
        rng = random.Random(seed)
        topology = cases.cluster(rng)
        trace = cases.jobs(rng, topology, rng.randint(5, 40))
        result = simulate(topology, trace, made(name), cases.options(rng, topology))
        assert result.complete
        seen["runs"] += 1
        seen["queueing"] += bool(result.waited_s.sum() > 0)
        seen["preemption"] += bool(result.preemptions.sum())
        seen["spanning"] += sum(result.placements[1:]) > 0
        seen["shared link"] += result.shared_link_s > 0

    check()
    for what in ("queueing", "preemption", "spanning", "shared link"):
        assert seen[what] >= 0.3 * seen["runs"], seen


class Broken:
    """A fleet (or queue) of which one answer is wrong."""

    def __init__(self, fleet, **wrong):
        self._fleet = fleet
        for name, method in wrong.items():
            setattr(self, name, lambda *args, _m=method: _m(self._fleet, *args))

    def __len__(self):
        return len(self._fleet)

    def __iter__(self):
        return iter(self._fleet)

    def __getattr__(self, name):
        return getattr(self._fleet, name)


def double_booking(sim):
    sim.fleet = Broken(sim.fleet, take=lambda fleet, placement: fleet.take(placement[1:]))


def lost_gpus(sim):
    finish = sim._finish

    def keep(state):
        placement = state.placement
        finish(state)
        sim.fleet.take(placement)

    sim._finish = keep


def lost_work(sim):
    sim.fleet = Broken(sim.fleet, end=lambda fleet, job, now: 0.9 * fleet.end(job, now))


def work_from_nowhere(sim):
    sim.fleet = Broken(
        sim.fleet, begin=lambda fleet, *a: fleet.begin(*a[:3], a[3] + 0.01 * a[4], *a[4:])
    )


def broken_gang(sim):
    enter = sim._enter

    def fewer(state, placement, waited):
        (machine, gpus), *rest = placement
        enter(state, ((machine, gpus - 1), *rest) if gpus > 1 else placement, waited)

    sim._enter = fewer


def unfair_rate(sim):
    """Links are shared in proportion to what jobs want."""
    fleet = PlainFleet(sim.topology)

    def proportional():
        flows = {j: r for j, r in fleet.runs.items() if r.traffic}
        asked: Counter[int] = Counter()
        for run in flows.values():
            for link, weight in run.traffic:
                asked[link] += weight * run.demand
        return {
            job: run.demand
            * min(1.0, *(sim.topology.capacity[k] / asked[k] for k, _ in run.traffic))
            for job, run in flows.items()
        }

    fleet.rates = proportional
    sim.fleet = fleet


def overloaded_link(sim):
    sim.fleet = PlainFleet(sim.topology, contention=False)


def slowed_for_nothing(sim):
    sim.fleet = Broken(
        sim.fleet,
        begin=lambda fleet, *a: fleet.begin(*a[:5], a[5] / 2, *a[6:]),
    )


def time_backwards(sim):
    sim.fleet = Broken(sim.fleet, next=lambda fleet: (fleet.next()[0] - 100.0, fleet.next()[1]))


def late_end(sim):
    sim.fleet = Broken(sim.fleet, next=lambda fleet: (fleet.next()[0] + 100.0, fleet.next()[1]))


def waits_and_runs(sim):
    sim.view._set(waiting=Broken(sim.view.waiting, _remove=lambda waiting, state: None))


def uncounted_wait(sim):
    leave = sim._leave

    def later(state, **how):
        leave(state, **how)
        become(state, Writable)
        state.since += 1.0
        become(state, JobState)

    sim._leave = later


def runs_on_a_dead_machine(sim):
    sim._lose = lambda state, machine: None


def gains_by_failing(sim):
    sim.fleet = Broken(sim.fleet, fail=lambda fleet, job, now: fleet.end(job, now) * 1.5 + 1.0)


BUGS = {
    double_booking: "booked twice",
    lost_gpus: "booked twice or lost",
    lost_work: "work is conserved",
    work_from_nowhere: "work is conserved",
    broken_gang: "gangs are whole|booked twice|every job",
    unfair_rate: "max-min",
    overloaded_link: "overloaded",
    slowed_for_nothing: "work is conserved",
    time_backwards: "time goes forward|work is conserved",
    late_end: "jobs end when",
    waits_and_runs: "waits or runs",
    uncounted_wait: "waits or runs",
    runs_on_a_dead_machine: "down",
    gains_by_failing: "gained by failing",
}


def busy(bug=None) -> Simulation:
    """A run with queues, preemption, spanning placements, shared links and a failure."""
    topology = grid((2, 2, 8), oversubscription=8)
    small, even, heavy = cases.PROFILES
    trace = [
        Job(i, f"j{i}", 40.0 * i, gpus, gpus, 3000 if gpus < 6 else 6000, profile, 5.0, 20.0)
        for i, (gpus, profile) in enumerate(
            [(12, heavy), (12, heavy), (2, small), (12, even), (1, small), (20, heavy), (3, even)]
            * 3
        )
    ]
    options = Options(
        invariants=True, outages=(Outage(1, 900.0, 1500.0),), checkpoint_every_s=300.0
    )
    sim = Simulation(
        topology, trace, Dally(lease_s=60.0, rack=0.0, network=0.0, tick_s=2.0), options
    )
    if bug is not None:
        bug(sim)
        if isinstance(sim.fleet, PlainFleet):
            sim.view._set(_fleet=sim.fleet)
    return sim


def test_the_run_that_bugs_are_planted_in_is_sound_and_busy():
    result = busy().run()
    assert result.complete
    assert result.preemptions.sum() > 0
    assert result.waited_s.sum() > 0
    assert result.placements[2] > 0
    assert result.contended_s > 0


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(bug):
    with pytest.raises(InvariantError, match=BUGS[bug]):
        busy(bug).run()


def test_the_plain_fleet_gives_the_same_run():
    topology = grid((2, 2, 4), oversubscription=8)
    for seed in range(10):
        trace = cases.jobs(random.Random(seed), topology, 30)
        fast = Simulation(topology, trace, Dally(lease_s=60.0, history=4), Options())
        plain = Simulation(topology, trace, Dally(lease_s=60.0, history=4), Options())
        plain.fleet = PlainFleet(topology)
        plain.view._set(_fleet=plain.fleet)
        ours, oracle = fast.run(), plain.run()
        assert list(ours.finish_s) == pytest.approx(list(oracle.finish_s))
        assert ours.shared_link_s == pytest.approx(oracle.shared_link_s)
        assert ours.contended_s == pytest.approx(oracle.contended_s)


def test_invariants_do_not_change_a_run():
    topology = grid((2, 2, 4))
    trace = cases.jobs(random.Random(3), topology, 40)
    plain = simulate(topology, trace, Fifo())
    checked = simulate(topology, trace, Fifo(), Options(invariants=True))
    assert list(plain.finish_s) == list(checked.finish_s)
