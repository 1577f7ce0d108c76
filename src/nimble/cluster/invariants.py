"""What must hold after every event of a simulation, worked out again from the jobs alone."""

from __future__ import annotations

from collections import Counter
from math import isclose
from typing import TYPE_CHECKING

from nimble.cluster.state import JobState
from nimble.errors import InvariantError

if TYPE_CHECKING:
    from nimble.cluster.simulator import Simulation

# Rounding: progress is one multiplication, the ledger many additions.
CLOSE = 1e-6


class Ledger:
    """Steps every job's work on from event to event, which the simulator itself never does."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._now = 0.0
        self._work: dict[int, float] = {}
        self._rates: dict[int, tuple[float, float]] = {}  # from when on, units a second
        self._failures: dict[int, int] = {}

    def check(self) -> None:
        """InvariantError, naming what is broken and when, unless all holds."""
        self._time()
        self._gangs()
        self._gpus()
        self._progress()
        self._rates_are_fair()
        self._clocks()
        self._now = self._sim.now

    def _fail(self, rule: str, what: str) -> None:
        raise InvariantError(f"{rule}, at {self._sim.now:.10g} s: {what}")

    def _time(self) -> None:
        now = self._sim.now
        if now < self._now:
            self._fail("time goes forward", f"it was {self._now:.10g} s before")
        ends, job = self._sim.fleet.next()
        if ends < now:
            self._fail("time goes forward", f"job {job} should have ended at {ends:.10g} s")

    def _gangs(self) -> None:
        view = self._sim.view
        waiting = [state.id for state in view.waiting]
        if len(waiting) != len(view.waiting) or sorted([*waiting, *view.running]) != sorted(
            view.jobs
        ):
            self._fail("every job waits or runs", "some do both, or neither")
        for state in view.jobs.values():
            held = sum(count for _, count in state.placement)
            if held != state.gpus or (held > 0) != (state.id in view.running):
                self._fail("gangs are whole", f"{state} holds {held} GPUs")
            if held and not state.job.gpus_min <= held <= state.job.gpus_max:
                self._fail("gangs are whole", f"{state} wants {state.job.gpus_min} or more")

    def _gpus(self) -> None:
        sim = self._sim
        held: Counter[int] = Counter()
        for state in sim.view.running.values():
            for machine, count in state.placement:
                held[machine] += count
                if sim._down[machine]:
                    self._fail("nothing runs on a machine that is down", f"{state} does")
        for machine, of in enumerate(sim.topology.machines):
            free = sim.fleet.left(machine)
            if free < 0 or held[machine] + free != of.gpus:
                self._fail(
                    "no GPU is booked twice or lost",
                    f"{of.name} has {of.gpus}, of which {held[machine]} are held and {free} free",
                )
            drained = sim.keeper is not None and machine in sim.keeper.drained
            offered = 0 if sim._down[machine] or drained else free
            if sim.fleet.free_in(machine) != offered:
                self._fail("the index of free GPUs is right", f"{of.name} offers another number")
        root = len(sim.topology.parent) - 1
        if sim.fleet.free != sim.fleet.free_in(root):
            self._fail("the index of free GPUs is right", "its sum is not")

    def _progress(self) -> None:
        sim, now = self._sim, self._sim.now
        for state in (*sim.ended, *sim.view.jobs.values()):
            job = state.id
            work = self._work.get(job, 0.0)
            if job in self._rates:
                begins, rate = self._rates[job]
                work += max(0.0, now - max(self._now, begins)) * rate
            done = sim.fleet.done(job, now) if state.gpus else state.done
            if self._failures.get(job, 0) != state.failures:
                # Back to a checkpoint: at most what was done before is left.
                self._failures[job] = state.failures
                if done > work * (1 + CLOSE) + CLOSE:
                    self._fail("work is conserved", f"{state} gained by failing")
                work = done
            total = state.job.iterations
            if work > total * (1 + CLOSE):
                self._fail("jobs end when their work is done", f"{state} did not")
            if not isclose(min(work, total), done, rel_tol=CLOSE, abs_tol=CLOSE * total):
                self._fail("work is conserved", f"{state} has done {done:.9g}, not {work:.9g}")
            if state.finished:
                self._work.pop(job, None)
                self._rates.pop(job, None)
                continue
            self._work[job] = work
            self._rates.pop(job, None)
            if state.gpus:
                self._rates[job] = (state.resumes_s, state.speed * sim.fleet.share(job))

    def _rates_are_fair(self) -> None:
        """At its demand, or with the largest rate on a full link: O(nonzeros)."""
        sim = self._sim
        rates: list[tuple[JobState, float, float, list[int]]] = []
        load: Counter[int] = Counter()
        largest: dict[int, float] = {}
        for state in sim.view.running.values():
            cost = sim.view.cost(state.job, state.placement)
            demand = state.job.profile.bytes / cost.iteration_s
            rate = sim.fleet.share(state.id) * demand
            if rate > demand * (1 + CLOSE):
                self._fail("rates are max-min fair", f"{state} is above its demand")
            if not sim.options.contention or not cost.traffic:
                if sim.fleet.share(state.id) != 1:
                    self._fail("rates are max-min fair", f"{state} shares no link, yet is slowed")
                continue
            rates.append((state, rate, demand, [link for link, _ in cost.traffic]))
            for link, weight in cost.traffic:
                load[link] += weight * rate  # type: ignore[assignment]
                largest[link] = max(largest.get(link, 0.0), rate)
        capacity = sim.topology.capacity
        for link, bytes_s in load.items():
            if bytes_s > capacity[link] * (1 + CLOSE):
                self._fail("no link is overloaded", f"{sim.topology.names[link]}'s is")
        for state, rate, demand, links in rates:
            if rate < demand * (1 - CLOSE) and not any(
                load[link] >= capacity[link] * (1 - CLOSE) and rate >= largest[link] * (1 - CLOSE)
                for link in links
            ):
                self._fail("rates are max-min fair", f"{state} could go faster")

    def _clocks(self) -> None:
        view = self._sim.view
        for state in view.jobs.values():
            passed = view.now - state.job.submit_s
            spent = view.run_s(state) + view.waited_s(state)
            if not isclose(passed, spent, rel_tol=CLOSE, abs_tol=CLOSE):
                self._fail("a job waits or runs at any time", f"{state}: {spent} of {passed} s")
