"""Quotas, reservations, drains and priorities hold whatever the policy."""

from __future__ import annotations

import random

import cluster_cases as cases
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nimble.cluster import Drain, Job, Options, Profile, Reservation, Rules, grid, simulate
from nimble.cluster.policies import POLICIES
from nimble.cluster.policy import Action, Kind, Reason
from nimble.errors import InputError, PolicyError

SMALL = Profile("small", 1.0, (1000,))


def job(id: int, gpus: int, submit_s: float = 0.0, length: int = 100, **more) -> Job:
    return Job(id, f"j{id}", submit_s, gpus, gpus, length, SMALL, **more)


def random_rules(rng: random.Random, machines: int, quota: int) -> Rules:
    reservations, drains = [], []
    if machines > 1:
        for _ in range(rng.randint(0, 2)):
            start = rng.uniform(0, 3000)
            on = rng.sample(range(machines), rng.randint(1, machines - 1))
            reservations.append(
                Reservation(rng.choice("ab"), tuple(on), start, start + rng.uniform(1, 4000))
            )
        for _ in range(rng.randint(0, 2)):
            start = rng.uniform(0, 3000)
            stop = start + rng.uniform(1, 500)
            drains.append(Drain(rng.randrange(machines), start, stop, stop + rng.uniform(1, 2000)))
    quotas = {"a": quota} if rng.random() < 0.7 else {}
    return Rules(quotas, tuple(reservations), tuple(drains))


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_rules_hold_in_every_random_run(name, seed):
    rng = random.Random(seed)
    topology = cases.cluster(rng)
    trace = cases.jobs(rng, topology, rng.randint(5, 25))
    quota = max([one.gpus_min for one in trace if one.tenant == "a"], default=1)
    rules = random_rules(rng, len(topology.machines), quota)
    result = simulate(topology, trace, POLICIES[name](), Options(rules=rules, invariants=True))
    assert result.complete
    tenant = {one.id: one.tenant for one in trace}
    segments = list(result.record.segments())
    for segment in segments:
        for machine, _ in segment.placement:
            for reservation in rules.reservations:
                if reservation.start_s <= segment.start_s < reservation.end_s:
                    mine = reservation.tenant == tenant[segment.job]
                    others = [r for r in rules.reservations if machine in r.machines]
                    assert mine or machine not in reservation.machines or len(others) > 1
            for drain in rules.drains:
                if drain.machine == machine:
                    assert not drain.start_s <= segment.start_s < drain.end_s
                    assert not segment.start_s < drain.stop_s < min(segment.end_s, drain.end_s)
    for at in {segment.start_s for segment in segments}:
        held = sum(
            sum(gpus for _, gpus in segment.placement)
            for segment in segments
            if tenant[segment.job] == "a" and segment.start_s <= at < segment.end_s
        )
        assert held <= rules.quotas.get("a", topology.gpus)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_job_of_higher_priority_starts_first(name):
    jobs = [job(0, 4, priority=0), job(1, 4, priority=5), job(2, 4, priority=1)]
    result = simulate(grid((4,)), jobs, POLICIES[name]())
    assert result.first_start_s[1] <= result.first_start_s[2] <= result.first_start_s[0]
    assert result.finish_s[1] == pytest.approx(100.0, rel=1e-3)


def test_a_job_above_its_tenants_quota_is_refused_at_once():
    with pytest.raises(
        InputError, match=r"job 0 \(j0\) wants 4 GPUs; the quota of tenant 'a' is 2"
    ):
        simulate(
            grid((4,)), [job(0, 4, tenant="a")], POLICIES["fifo"](), Options(rules=Rules({"a": 2}))
        )


class Careless:
    """Puts every job on the first machine, rules or not."""

    name = "careless"

    def rank(self, state, view):
        return 0.0

    def decide(self, view, memory, now):
        starts = [
            Action(Kind.START, state.id, ((0, state.demand),), Reason("tightest_free", (0.0,)))
            for state in view.waiting
        ]
        return starts, memory, float("inf")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules({"a": 2}), "the quota of tenant 'a' has 0 left"),
        (Rules(drains=(Drain(0, 0.0),)), "being drained or reserved"),
        (Rules(reservations=(Reservation("b", (0,), 0.0, 9.0),)), "being drained or reserved"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_named(rules, message):
    jobs = [job(0, 2, tenant="a"), job(1, 2, tenant="a")]
    with pytest.raises(PolicyError, match=f"policy 'careless' at 0 s.*{message}"):
        simulate(grid((2, 4)), jobs, Careless(), Options(rules=rules))


def test_a_drained_machine_is_empty_at_its_stop_and_open_again_at_its_end():
    rules = Rules(drains=(Drain(0, 10.0, 50.0, 80.0),))
    jobs = [job(0, 4), job(1, 4, submit_s=20.0)]
    result = simulate(grid((4,)), jobs, POLICIES["fifo"](), Options(rules=rules))
    story = [(event.at_s, event.reason.code) for event in result.record.of_job(0)]
    assert story[2] == (50.0, "machine_drained")
    assert result.record.of_job(0)[3].at_s == 80.0
