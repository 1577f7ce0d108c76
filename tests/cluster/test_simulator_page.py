"""The examples of docs/cluster-simulator.md run; waits explain themselves; outages are seeded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nimble.cluster import Job, Options, Profile, grid, parse, simulate
from nimble.cluster.outages import random_outages
from nimble.cluster.policies.dally import Dally
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policy import Policy, words
from nimble.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "cluster-simulator.md"
QUIET = Profile("quiet", 1.0, ())


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_first_example_runs(capsys):
    exec(examples()[0], {})
    assert len(capsys.readouterr().out.split()) >= 3


def test_the_example_policy_does_what_it_says():
    space: dict = {}
    exec(examples()[1], space)
    policy = space["SmallestFirst"]()
    assert isinstance(policy, Policy)
    trace = [Job(i, f"j{i}", 0.0, g, g, 10, QUIET) for i, g in enumerate((4, 2, 1, 4))]
    result = simulate(grid((1, 4)), trace, policy, Options(invariants=True))
    assert list(result.first_start_s) == [10, 0, 0, 20]
    start = result.record.of_job(1)[1]
    assert words(*start.reason, policy.reasons) == "wanted only 2 GPUs"


class Asked:
    """Asks a policy why each waiting job waits, after every decision."""

    def __init__(self, policy):
        self.policy, self.said = policy, []
        self.name, self.lease_s, self.tick_s = policy.name, 100.0, 1.0

    def start(self):
        return getattr(self.policy, "start", dict)()

    def rank(self, state, view):
        return self.policy.rank(state, view)

    def decide(self, view, memory, now):
        actions, memory, wake_at = self.policy.decide(view, memory, now)
        started = {action.job for action in actions}
        for state in view.waiting:
            if state.id not in started:
                self.said.append(words(*self.policy.why_waiting(state, view, memory, now)))
        return actions, memory, wake_at


def test_a_wait_says_what_it_waits_for():
    # Job 0 leaves two GPUs on one machine and jobs of a higher priority one on each of the others.
    long = [Job(i, f"b{i}", 0.0, 1, 1, 5000, QUIET, priority=1) for i in range(4)]
    wide = Job(9, "wide", 0.0, 2, 2, 10, QUIET)
    asked = Asked(Dally(lease_s=100.0, rack=6.0, network=12.0))
    simulate(grid((2, 1, 2)), [*long, wide], asked)
    assert asked.said[0] == "waits for 2 GPUs in one machine; takes a rack in 600 s"
    fifo = Asked(Fifo())
    simulate(grid((1, 4)), [*long, wide], fifo)
    assert fifo.said[0].startswith("wants 2 GPUs; ")


def test_outages_are_the_same_for_the_same_seed():
    topology = parse("2x4x8")
    asked = {"until_s": 1e7, "between_s": 1e6, "repair_s": 1e4}
    first = random_outages(topology, **asked)
    assert first == random_outages(topology, **asked)
    assert first != random_outages(topology, **asked, seed=1)
    assert 40 < len(first) < 120
    assert all(outage.at_s < outage.until_s for outage in first)
    with pytest.raises(InputError, match="not above 0"):
        random_outages(topology, until_s=1.0, between_s=0.0, repair_s=1.0)


def test_a_busy_cluster_survives_its_failures():
    topology = parse("2x2x4")
    outages = random_outages(topology, until_s=50_000, between_s=3000.0, repair_s=500.0)
    trace = [
        Job(i, f"j{i}", 50.0 * i, 1 + i % 9, 1 + i % 9, 800, QUIET, 1.0, 5.0) for i in range(40)
    ]
    result = simulate(
        topology,
        trace,
        Dally(lease_s=60.0),
        Options(invariants=True, outages=outages, checkpoint_every_s=100.0),
    )
    assert result.complete
    assert sum(event.reason.code == "machine_failed" for event in result.record.events()) > 10
