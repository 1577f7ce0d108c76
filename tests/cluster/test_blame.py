"""A policy that does what it must not is told what, where and after which event; rules are not
blamed on it; and nothing it does reaches the simulator but by its actions."""

from __future__ import annotations

import re
from math import inf, nan

import pytest

from nimble.cluster import (
    Action,
    Drain,
    Job,
    Kind,
    Options,
    Outage,
    Profile,
    Reason,
    Reservation,
    Rules,
    grid,
    simulate,
)
from nimble.cluster.metrics import metrics
from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policies.own import load_policy
from nimble.errors import InputError, PolicyError, RulesError

QUIET = Profile("quiet", 1.0, ())


def jobs(*gpus: int, tenant: str = "") -> list[Job]:
    return [
        Job(i, f"j{i}", 10.0 * i, count, count, 100, QUIET, tenant=tenant)
        for i, count in enumerate(gpus)
    ]


class Meddling(Fifo):
    """FIFO that does something else before it decides, from 10 s on."""

    name = "meddling"

    def __init__(self, does):
        super().__init__()
        self.does = does

    def decide(self, view, memory, now):
        if now >= 10:
            self.does(view, memory)
        return super().decide(view, memory, now)


def first(view):
    return next(iter(view.running.values()))


def empty(mapping):
    mapping.clear()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda view, _: setattr(first(view), "done", 5.0), r"done of job 0 \(j0\) cannot be set"),
        (lambda view, _: setattr(first(view), "ideal_s", 0.0), "ideal_s of job 0"),
        (lambda view, _: setattr(first(view), "run_s", -1.0), "run_s of job 0"),
        (lambda view, _: setattr(first(view), "invented", 1), "invented of job 0"),
        (lambda view, _: setattr(first(view).job, "iterations", 1), "cannot assign to field"),
        (lambda view, _: setattr(view, "now", 0.0), r"view\.now cannot be set"),
        (lambda view, _: setattr(view, "running", {}), r"view\.running cannot be set"),
        (lambda view, _: view.running.pop(0), "no attribute 'pop'"),
        (lambda view, _: empty(view.jobs), "no attribute 'clear'"),
        (lambda view, _: view.waiting.remove(next(iter(view.waiting))), "no attribute 'remove'"),
        (lambda view, _: view.rules.quotas.update(a=1), "no attribute 'update'"),
        (lambda view, _: setattr(view.rules, "drains", ()), "cannot assign to field"),
    ],
)
def test_the_view_is_read_only(does, said):
    with pytest.raises(PolicyError, match=said) as told:
        simulate(grid((2, 2)), jobs(1, 4, 4), Meddling(does), Options(invariants=True))
    # What had happened up to there is sound.
    assert metrics(told.value.result)["finished"] == 0


def test_a_draft_of_an_earlier_decision_is_refused():
    kept = []

    def does(view, memory):
        kept.append(view.draft())
        if len(kept) > 1:
            kept[0].start(first(view), ((0, 1),), Reason("again"))

    with pytest.raises(PolicyError, match="this draft is of an earlier decision"):
        simulate(grid((2, 2)), jobs(1, 4, 4), Meddling(does))


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda d, v: d.start(next(iter(v.waiting)), ((0, 2),), Reason("x")),
         r"2 GPUs of machine0 asked for, 1 are free"),
        (lambda d, v: d.release(next(iter(v.waiting)), Reason("x")), "it waits, or was released"),
        (lambda d, v: [d.release(first(v), Reason("x")) for _ in range(2)], "was released here"),
    ],
)  # fmt: skip
def test_a_draft_says_what_cannot_be_tried(does, said):
    with pytest.raises(PolicyError, match=said):
        simulate(grid((2, 2)), jobs(1, 4), Meddling(lambda view, memory: does(view.draft(), view)))


def test_a_released_job_gets_its_gpus_back_unless_they_are_gone():
    told = []

    def does(view, memory):
        if len(view.running) < 2:
            return
        draft = view.draft()
        one, other = view.running.values()
        free = draft.free
        draft.release_all([one, other], Reason("x"))
        told.append((draft.keep(one), draft.free == free + other.gpus, draft.is_released(one)))
        draft.start(next(iter(view.waiting)), other.placement, Reason("x"))
        told.append((draft.keep(other), draft.is_released(other), one.id in draft.taken))
        stop, start = draft.actions()
        told.append((stop.job == other.id, start.placement == other.placement))

    simulate(grid((2, 2)), jobs(2, 2, 2), Meddling(does))
    assert told[:3] == [(True, True, False), (False, True, True), (True, True)]


class Remembers(Fifo):
    """FIFO that keeps something, from the decision with this number on."""

    name = "remembers"

    def __init__(self, what, since=1, key="seen"):
        super().__init__()
        self.what, self.since, self.key = what, since, key

    def start(self):
        return {"decisions": 0}

    def decide(self, view, memory, now):
        memory["decisions"] += 1
        if memory["decisions"] >= self.since:
            memory[self.key] = self.what
        return super().decide(view, memory, now)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({1, 2}, r"memory\['seen'\] = \{1, 2\} \(set\)"),
        ((1, 2), r"memory\['seen'\] = \(1, 2\) \(tuple\)"),
        ({"a": [1, {"b": object()}]}, r"memory\['seen'\]\['a'\]\[1\]\['b'\] = <object .*"),
        (inf, r"memory\['seen'\] = inf"),
        ([0.0, nan], r"memory\['seen'\]\[1\] = nan"),
        ({3: "x"}, r"the key 3 \(int\) in memory\['seen'\]"),
    ],
)
@pytest.mark.parametrize("since", [1, 11])
def test_a_memory_that_json_cannot_keep_is_refused(what, said, since):
    # Looked at in decisions 1, 2, 4, 8 … and at the end: also what came to it late is found.
    with pytest.raises(
        PolicyError, match=f"policy 'remembers' .*it keeps {said}; expected"
    ) as told:
        simulate(grid((8,)), jobs(*[1] * 8), Remembers(what, since))
    assert metrics(told.value.result)["finished"] == (0 if since == 1 else 8)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (lambda: None, r"gave back None \(NoneType\) as its memory"),
        (lambda: {"at": inf}, r"keeps memory\['at'\] = inf"),
        (lambda: 1 / 0, r"raised ZeroDivisionError.*\(start\)"),
    ],
)
def test_the_first_memory_is_looked_at_too(start, said):
    policy = Fifo()
    policy.start = start
    with pytest.raises(PolicyError, match=f"policy 'fifo' at 0 s, after the start: it {said}"):
        simulate(grid((8,)), jobs(1), policy)


def test_a_memory_that_json_can_keep_is_taken():
    what = {"a": [1, 2.5, None, True, "x", {"b": []}]}
    result = simulate(grid((8,)), jobs(1, 1), Remembers(what))
    assert result.memory["seen"] == what


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_keeps_what_json_can(name):
    trace = [Job(i, f"j{i}", 5.0 * i, 1 + i % 5, 1 + i % 5, 400, QUIET) for i in range(40)]
    assert simulate(grid((2, 2, 2)), trace, POLICIES[name]()).complete


ORDER = "    def decide(self, view, memory, now):\n"
FILE = f"""from math import inf

class Mine:
    name = "mine"

    def rank(self, state, view):
        return {{rank}}

{ORDER}        {{decide}}

    def helped(self, view):
        return 1 / 0
"""


@pytest.mark.parametrize(
    ("decide", "rank", "said"),
    [
        ("raise KeyError('x')", "0", r"raised KeyError\('x'\) at {file}:10 in decide$"),
        ("self.helped(view)", "0", r"raised ZeroDivisionError.* at {file}:13 in helped$"),
        ("view.draft().fit(None, 0)", "0",
         r"raised AttributeError.* at {file}:10 in decide, which came to \S+draft.py:\d+ in fit$"),
        ("pass", "state.jobs", r"at {file}:7 in rank, asked for rank\(JobState\(0"),
        ("return None", "0", r"gave back None \(NoneType\); expected \(actions, memory, wake_at"),
        ("return 5, memory, inf", "0", r"5 \(int\) as its actions; expected a list"),
        ("return (), [], inf", "0", r"\[\] \(list\) as its memory; expected a dict"),
        ("return (), memory, None", "0", r"None \(NoneType\) as wake_at; expected seconds"),
        ("return [3], memory, inf", "0", r"gave back 3; expected Action"),
    ],
)  # fmt: skip
def test_the_line_at_fault_is_named(tmp_path, decide, rank, said):
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(decide=decide, rank=rank))
    pattern = "policy 'mine' at 0 s, after the arrival of job 0 .*" + said.format(
        file=re.escape(str(file))
    )
    with pytest.raises(PolicyError, match=pattern):
        simulate(grid((2, 2)), jobs(1), load_policy(f"{file}:Mine"))


WHY = Reason("x")


def acting(placement=((0, 1),), reason=WHY):
    return lambda view, memory, now: ([Action(Kind.START, 0, placement, reason)], memory, inf)


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        (acting(placement=None), r"gave job 0 \(j0\) None .*expected \(\(machine, GPUs\), ...\)"),
        (acting(placement=(0, 1)), r"\(0, 1\) .*expected \(\(machine, GPUs\), ...\)"),
        (acting(placement=((0, 2), (1, -1))), "one GPU or more of each machine"),
        (acting(reason="because"), "expected Action"),
        (acting(reason=Reason("x", ("soon",))), "a code and up to three numbers"),
        (acting(reason=Reason("x", (1, 2, 3, 4))), "a code and up to three numbers"),
    ],
)
def test_an_action_that_is_none_is_named(decide, said):
    policy = Fifo()
    policy.decide = decide
    with pytest.raises(PolicyError, match=said):
        simulate(grid((2, 2)), jobs(1), policy)


def test_ranks_that_cannot_be_compared_are_named():
    policy = Fifo()
    policy.decide = lambda view, memory, now: ((), memory, inf)
    policy.rank = lambda state, view: "first" if state.id else 1.0
    with pytest.raises(PolicyError, match=r"ranked job 1 \(j1\) 'first', which cannot be compared"):
        simulate(grid((2, 2)), jobs(1, 1), policy)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (Options(rules=Rules(reservations=(Reservation("b", (0, 1), 0.0, inf),))), 0),
        (Options(rules=Rules(reservations=(Reservation("b", (1,), 0.0, inf),))), 2),
        (Options(rules=Rules(drains=(Drain(0, 0.0),))), 2),
        (Options(outages=(Outage(0, 5.0, inf),)), 2),
    ],
)
@pytest.mark.parametrize("name", ["fifo", "dally", "dally+", "tiresias"])
def test_rules_that_shut_a_job_out_are_not_blamed_on_the_policy(options, left, name):
    trace = jobs(4, 4, tenant="a")
    with pytest.raises(RulesError, match=rf"the rules leave 2 jobs .*leave it {left} of 4") as told:
        simulate(grid((2, 2)), trace, POLICIES[name](), options)
    assert not told.value.result.complete


def test_a_job_that_could_run_is_still_the_policys_to_start():
    policy = Fifo()
    policy.decide = lambda view, memory, now: ((), memory, inf)
    rules = Rules(drains=(Drain(0, 0.0),))
    with pytest.raises(PolicyError, match=r"left 1 jobs .*and 1 that the rules shut out.*job 1"):
        simulate(grid((2, 2)), jobs(4, 2), policy, Options(rules=rules))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Drain(0, 10.0, end_s=5.0), "drain of machine 0: it ends at 5 s, before its start"),
        (lambda: Drain(0, 10.0, stop_s=5.0), "it stops jobs at 5 s, before its start"),
        (lambda: Reservation("a", (0,), 10.0, 10.0), "reservation for 'a': it ends at 10 s"),
        (lambda: Reservation("a", (), 0.0, 10.0), "no machines"),
        (lambda: Outage(0, 10.0, 5.0), "outage of machine 0: it ends at 5 s"),
        (lambda: Outage(0, nan, 5.0), "outage of machine 0: it begins at nan s"),
        (lambda: Rules({"a": -1}), "quota of 'a': -1 GPUs"),
    ],
)
def test_rules_that_make_no_sense_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()
