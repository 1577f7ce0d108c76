"""What sets each of Dally's peers apart, one rule at a time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import cluster_cases as cases
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_starvation import overtaken, trace

from nimble.cluster import Job, Options, Profile, grid, simulate
from nimble.cluster.policies.a_srpt import serve
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policies.gavel import class_of, max_min_shares
from nimble.cluster.policies.lwf import Lwf
from nimble.cluster.policies.themis import ratio

ONE = Profile("one", 1.0, (1000,))
PATIENCE_S = 1800.0


def stream() -> list[Job]:
    """Small jobs that keep eight GPUs busy, and one that wants all of them."""
    small = [Job(i, f"s{i}", 40.0 * i, 1, 1, 400, ONE) for i in range(300)]
    return [*small, Job(300, "all", 15.0, 8, 8, 100, ONE)]


def test_fifo_lets_smaller_jobs_pass_only_for_a_while():
    aged = simulate(grid((8,)), stream(), Fifo(patience_s=PATIENCE_S))
    never = simulate(grid((8,)), stream(), Fifo(patience_s=inf))
    assert 15 + PATIENCE_S <= aged.first_start_s[300] <= 15 + PATIENCE_S + 401
    assert never.first_start_s[300] > 300 * 40
    codes = {event.reason.code for event in aged.record.events()}
    assert "backfilled" in codes


@settings(max_examples=20, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(0, 2**48), st.sampled_from([0.7, 1.5, 3.0]))
def test_after_its_patience_no_later_job_overtakes_under_fifo(seed, load):
    rng = random.Random(seed)
    topology = cases.cluster(rng)
    # Of one priority: the first in line is then who has waited longest.
    jobs = [replace(job, priority=0) for job in trace(rng, topology, load, 40)]
    result = simulate(topology, jobs, Fifo(patience_s=PATIENCE_S), Options(invariants=True))
    assert overtaken(result, jobs, PATIENCE_S) == []


def test_gavel_gives_jobs_equal_gpu_time_not_equal_time():
    narrow, wide = Job(0, "n", 0.0, 1, 1, 10, ONE), Job(1, "w", 0.0, 8, 8, 10, ONE)
    counts = Counter({class_of(narrow): 8, class_of(wide): 1})
    view = SimpleNamespace(topology=grid((8,)))
    shares = max_min_shares(view, [narrow, wide], counts)
    assert shares == pytest.approx({class_of(narrow): 8 / 9, class_of(wide): 1 / 9})


def test_themis_holds_a_job_to_its_share_of_the_cluster():
    view = SimpleNamespace(topology=grid((8,)), jobs=[1, 2], now=0.0, left_s=lambda s: s.ideal_s)
    small, whole = (
        SimpleNamespace(job=SimpleNamespace(submit_s=0.0), ideal_s=100.0, demand=gpus)
        for gpus in (1, 8)
    )
    # Two jobs on eight GPUs: four are each one's share, on which the larger takes twice as long.
    assert (ratio(view, small), ratio(view, whole)) == (1.0, 0.5)


def test_lwf_lets_two_jobs_share_a_link_if_their_messages_are_unlike():
    job = Job(0, "j", 0.0, 2, 2, 10, Profile("p", 1.0, (1000,)))
    policy = Lwf(ratio=2.0)
    assert policy._admitted(job, [])
    assert policy._admitted(job, [500])
    assert policy._admitted(job, [2000])
    assert not policy._admitted(job, [1500])
    assert not policy._admitted(job, [100, 10_000])


def test_the_imagined_machine_of_a_srpt_serves_the_least_work_first():
    memory = {"imagined": [[0, 5.0, 2], [0, 10.0, 1]], "at": 100.0, "ended": []}
    serve(memory, 106.0)
    assert memory["ended"] == [2]
    assert memory["imagined"] == [[0, 9.0, 1]]
    serve(memory, 115.0)
    assert memory["ended"] == [2, 1]
