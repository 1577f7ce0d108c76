"""dally+: once a job has waited its bound, no later arrival overtakes it, at any load."""

from __future__ import annotations

import random

import cluster_cases as cases
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nimble.cluster import Job, Options, Profile, grid, simulate
from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.dally_plus import DallyPlus
from nimble.cluster.record import What

BOUND_S = 1800.0


def overtaken(result, jobs: list[Job], bound_s: float) -> list[tuple[int, int, float]]:
    """(job, later one, when): the later one started while the job was waiting beyond its bound."""
    by_id = {job.id: job for job in jobs}
    waiting: dict[int, float] = {}
    waited: dict[int, float] = dict.fromkeys(by_id, 0.0)
    found = []
    for event in result.record.events():
        job = event.job
        if event.what in (What.SUBMIT, What.STOP, What.FAIL):
            waiting[job] = event.at_s
        elif event.what is What.START:
            waited[job] += event.at_s - waiting.pop(job)
            for other, since in waiting.items():
                late = waited[other] + event.at_s - since >= bound_s
                # What stopped just now had not waited: it ran up to this very moment.
                if late and since < event.at_s and _later(by_id[job], by_id[other]):
                    found.append((other, job, event.at_s))
    return found


def _later(job: Job, other: Job) -> bool:
    return job.submit_s > other.submit_s and job.priority <= other.priority


def trace(rng: random.Random, topology, load: float, count: int) -> list[Job]:
    made = cases.jobs(rng, topology, count)
    work = sum(j.gpus_min * j.iterations * j.profile.compute_s for j in made)
    span = work / (load * topology.gpus)
    at = sorted(rng.uniform(0, span) for _ in made)
    fields = ("name", "gpus_min", "gpus_max", "iterations", "profile", "checkpoint_s", "restart_s",
              "priority", "tenant")  # fmt: skip
    return [
        Job(id=j.id, submit_s=t, **{name: getattr(j, name) for name in fields})
        for j, t in zip(made, at, strict=True)
    ]


@settings(max_examples=25, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(0, 2**48), st.sampled_from([0.7, 1.0, 1.5, 1.5, 3.0]))
def test_nobody_is_overtaken_after_the_bound(seed, load):
    rng = random.Random(seed)
    topology = cases.cluster(rng)
    jobs = trace(rng, topology, load, 40)
    policy = DallyPlus(lease_s=60.0, bound_s=BOUND_S)
    result = simulate(topology, jobs, policy, cases.options(rng, topology))
    assert result.complete
    assert overtaken(result, jobs, BOUND_S) == []


def test_the_check_finds_overtaking_where_there_is_some():
    topology = grid((1, 4, 8))
    jobs = trace(random.Random(1), topology, 1.5, 60)
    result = simulate(topology, jobs, POLICIES["srsf"](), Options())
    assert overtaken(result, jobs, BOUND_S)


def test_a_whole_machine_is_freed_for_a_job_that_others_keep_out():
    one = Profile("one", 1.0, (1000,))
    small = [Job(i, f"s{i}", 10.0 * i, 1, 1, 400 + i, one) for i in range(300)]
    large = Job(300, "large", 15.0, 8, 8, 5000, one)
    policy = DallyPlus(lease_s=60.0, bound_s=BOUND_S)
    result = simulate(grid((8,)), [*small, large], policy, Options(invariants=True))
    assert result.first_start_s[300] <= 15.0 + BOUND_S
    assert any(event.reason.code == "overdue" for event in result.record.of_job(300))
