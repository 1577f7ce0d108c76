"""What the simulator does with jobs, and with policies that do what they must not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from nimble.cluster import (
    Action,
    Job,
    Kind,
    Options,
    Outage,
    Profile,
    Reason,
    cost,
    grid,
    simulate,
)
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policy import REASONS, words
from nimble.cluster.record import What
from nimble.errors import InputError, PolicyError

QUIET = Profile("quiet", 1.0, ())
CHATTY = Profile("chatty", 0.1, (1_250_000_000,))
WHY = Reason("because")


def job(i: int, gpus: int = 1, seconds: int = 100, at: float = 0.0, **more) -> Job:
    """One that computes for `seconds` and sends nothing."""
    return Job(i, f"j{i}", at, gpus, gpus, seconds, QUIET, **more)


def test_jobs_run_in_the_order_in_which_they_come():
    result = simulate(grid((1, 2)), [job(0, 2), job(1, 2, at=10), job(2, 2, at=20)], Fifo())
    assert list(result.finish_s) == [100, 200, 300]
    assert list(result.waited_s) == [0, 90, 180]
    assert list(result.jct_s) == [100, 190, 280]
    assert result.peak_queue == 2
    assert result.complete


def test_small_jobs_pass_a_large_one_that_does_not_fit():
    trace = [job(0, 1), job(1, 2, at=1), job(2, 1, at=2)]
    assert list(simulate(grid((1, 2)), trace, Fifo()).finish_s) == [100, 202, 102]
    strict = simulate(grid((1, 2)), trace, Fifo(backfill=False))
    assert list(strict.finish_s) == [100, 200, 300]


def test_jobs_of_higher_priority_stand_first_under_every_policy():
    trace = [job(0), job(1, at=1), job(2, at=2, priority=1)]
    assert list(simulate(grid((1, 1)), trace, Fifo()).finish_s) == [100, 300, 200]


def test_a_gang_is_placed_as_tightly_as_possible():
    result = simulate(grid((2, 2, 4)), [job(0, 4), job(1, 8), job(2, 4)], Fifo())
    assert result.placements == (2, 1, 0)


def test_jobs_on_one_link_slow_each_other_down():
    # A ring over two machines sends 1.75 x 1.25 GB over each link of 12.5 GB/s in an iteration.
    topology = grid((2, 8))
    alone = cost(topology, CHATTY, ((0, 6), (1, 2)))
    assert alone.iteration_s == pytest.approx(0.1 + 0.175, rel=1e-2)
    share = 12.5e9 / (2 * 1.75 * 1.25e9 / alone.iteration_s)
    assert share < 1
    trace = [replace(job(i, 8, 1000), profile=CHATTY) for i in range(2)]
    both = simulate(topology, trace, Placed({0: ((0, 4), (1, 4)), 1: ((0, 4), (1, 4))}))
    assert list(both.finish_s) == pytest.approx([1000 * alone.iteration_s / share] * 2)
    assert both.shared_link_s == pytest.approx(2 * both.end_s)
    assert both.comm_s.sum() == pytest.approx(both.run_s.sum() - 2 * 1000 * 0.1)
    ignored = simulate(
        topology,
        trace,
        Placed({0: ((0, 4), (1, 4)), 1: ((0, 4), (1, 4))}),
        Options(contention=False),
    )
    assert list(ignored.finish_s) == pytest.approx([1000 * alone.iteration_s] * 2)


class Placed:
    """Starts jobs on given placements as soon as they come."""

    name = "placed"

    def __init__(self, placements, then=()):
        self.placements = placements
        self.then = dict(then)  # at a time: actions

    def rank(self, state, view):
        return 0.0

    def decide(self, view, memory, now):
        actions = [
            Action(Kind.START, state.id, self.placements[state.id], WHY)
            for state in view.waiting
            if state.first_start_s < 0
        ]
        actions += self.then.get(now, ())
        return actions, memory, min((at for at in self.then if at > now), default=inf)


def test_preemption_costs_a_checkpoint_and_a_restart():
    trace = [job(0, 1, 100, checkpoint_s=5.0, restart_s=10.0)]
    stop = Action(Kind.STOP, 0, (), WHY)
    start = Action(Kind.START, 0, ((0, 1),), WHY)
    result = simulate(grid((1, 1)), trace, Placed({0: ((0, 1),)}, {40.0: [stop], 60.0: [start]}))
    assert result.finish_s[0] == 60 + 15 + 60
    assert result.overhead_s[0] == 15
    assert result.waited_s[0] == 20
    assert result.preemptions[0] == 1
    told = [(event.what, event.at_s) for event in result.record.of_job(0)]
    assert told == [
        (What.SUBMIT, 0.0), (What.START, 0.0), (What.STOP, 40.0), (What.START, 60.0),
        (What.FINISH, 135.0),
    ]  # fmt: skip
    assert [(s.start_s, s.end_s) for s in result.record.segments()] == [(0.0, 40.0), (60.0, 135.0)]


def test_two_jobs_may_swap_places_in_one_decision():
    moves = [Action(Kind.MOVE, 0, ((1, 1),), WHY), Action(Kind.MOVE, 1, ((0, 1),), WHY)]
    policy = Placed({0: ((0, 1),), 1: ((1, 1),)}, {40.0: moves})
    result = simulate(grid((2, 1)), [job(0), job(1)], policy, Options(invariants=True))
    assert list(result.finish_s) == [100, 100]
    assert list(result.preemptions) == [1, 1]


def test_an_elastic_job_does_its_work_with_fewer_gpus():
    trace = [replace(job(0, 1, 100), gpus_max=4)]
    grow = Action(Kind.RESIZE, 0, ((0, 4),), WHY)
    result = simulate(
        grid((1, 4)), trace, Placed({0: ((0, 2),)}, {100.0: [grow]}), Options(invariants=True)
    )
    # Half of the work in 100 s with half of the GPUs, the rest in 50 s.
    assert result.finish_s[0] == 150
    assert result.gpu_s[0] == 400


def test_a_failed_machine_takes_its_jobs_back_to_their_checkpoints():
    trace = [job(0, 2, 100, restart_s=5.0), job(1, 1, 100)]
    options = Options(outages=(Outage(0, 50.0, 80.0),), checkpoint_every_s=20.0, invariants=True)
    result = simulate(grid((2, 2)), trace, Fifo(), options)
    # Work up to 40 s is saved; the other machine has one GPU left, so it waits for the repair.
    assert list(result.finish_s) == [80 + 5 + 60, 100]
    assert list(result.preemptions) == [0, 0]
    fails = [event for event in result.record.events() if event.what is What.FAIL]
    assert fails[0].reason == Reason("machine_failed", (0.0, 10.0))
    assert "machine 0 failed" in words(*fails[0].reason)


def test_a_run_can_stop_early():
    result = simulate(grid((1, 1)), [job(0), job(1), job(2, at=500)], Fifo(), Options(until_s=150))
    assert not result.complete
    assert result.finish_s[0] == 100
    assert list(result.first_start_s[:2]) == [0, 100]
    assert list(result.run_s) == [100, 50, 0]
    assert list(result.compute_s) == [100, 50, 0]
    assert list(result.waited_s) == [0, 100, 0]
    assert result.end_s == 150
    assert result.submit_s[2] == 500


def test_a_job_larger_than_the_cluster_is_refused():
    with pytest.raises(InputError, match=r"job 3 \(j3\) wants 9 GPUs; the cluster has 8"):
        simulate(grid((2, 4)), [job(3, 9)], Fifo())
    with pytest.raises(InputError, match="distinct"):
        simulate(grid((2, 4)), [job(3), job(3)], Fifo())


class Wrong(Fifo):
    """FIFO, until something goes wrong at 10 s."""

    name = "wrong"

    def __init__(self, does):
        super().__init__()
        self.does = does

    def decide(self, view, memory, now):
        if now >= 10:
            return self.does(view, memory, now)
        actions, memory, _ = super().decide(view, memory, now)
        return actions, memory, 10.0


def acting(*actions, wake=inf):
    return lambda view, memory, now: (actions, memory, wake)


def raising(view, memory, now):
    raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (raising, "raised ZeroDivisionError"),
        (acting(Action(Kind.START, 2, ((0, 2),), WHY)), "machine0, where 0 are free.*booked twice"),
        (acting(Action(Kind.START, 2, ((1, 1),), WHY)), "gave job 2 .* 1 GPUs; its gang is 2"),
        (acting(Action(Kind.START, 2, ((1, 1), (1, 1)), WHY)), "not distinct machines"),
        (acting(Action(Kind.START, 2, ((7, 2),), WHY)), "not distinct machines"),
        (acting(Action(Kind.START, 0, ((1, 2),), WHY)), r"start job 0 \(j0\), which runs"),
        (acting(Action(Kind.STOP, 2, (), WHY)), r"stop job 2 \(j2\), which waits"),
        (acting(Action(Kind.STOP, 9, (), WHY)), "job 9, which is not in the cluster"),
        (acting(wake=10.0), "woken at 10.0 s, which is not later than now"),
        (acting(), r"left 1 jobs waiting for ever, the first of them job 2 \(j2\)"),
        (lambda view, memory, now: ((), memory, now + 1), "left 1 jobs waiting for ever"),
    ],
)
def test_a_policy_that_goes_wrong_is_named_with_the_event(does, said):
    trace = [job(0, 2, 50), job(1, 1, 5), job(2, 2, 50, at=10)]
    whole = f"(?s)policy 'wrong' at .* s, after the .*{said}"
    with pytest.raises(PolicyError, match=whole) as told:
        simulate(grid((2, 2)), trace, Wrong(does))
    result = told.value.result
    assert not result.complete
    assert result.finish_s[1] == 5
    assert [event.what for event in result.record.of_job(1)] == [
        What.SUBMIT, What.START, What.FINISH,
    ]  # fmt: skip


def test_reasons_are_rendered_on_demand():
    for code, text in REASONS.items():
        assert words(code, (1.0, 2.0, 3.0)) == text.format(1.0, 2.0, 3.0)
    assert words("mine", (2.0,), {"mine": "took {0:.0f}"}) == "took 2"
    assert words("unknown", (2.0,)) == "unknown (2.0,)"


DIGEST = """
import hashlib, random, sys
sys.path.insert(0, {tests!r})
import cluster_cases as cases
from nimble.cluster import Options, grid, simulate
from nimble.cluster.policies.dally import Dally
topology = grid((3, 2, 4), oversubscription=8)
trace = cases.jobs(random.Random(5), topology, 80)
result = simulate(topology, trace, Dally(lease_s=60.0, history=4), Options(record_rates=True))
assert result.preemptions.sum() and result.shared_link_s
digest = hashlib.sha256(repr(list(result.record.events())).encode())
digest.update(repr(list(result.record.rates())).encode())
digest.update(result.finish_s.tobytes())
print(digest.hexdigest())
"""


def test_runs_are_the_same_in_every_process():
    code = DIGEST.format(tests=str(Path(__file__).parent))
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
