"""The simulator: jobs arrive, a policy decides, time jumps to what happens next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import heapify, heappop
from math import inf

import numpy as np

from nimble._cluster import Fleet
from nimble.cluster.columns import Columns
from nimble.cluster.intake import check_jobs, in_order
from nimble.cluster.invariants import Ledger
from nimble.cluster.job import Job
from nimble.cluster.keeper import Keeper, check_quotas
from nimble.cluster.policy import Action, Kind, Memory, Policy
from nimble.cluster.record import Record, What
from nimble.cluster.result import Options, Result
from nimble.cluster.rules import Rules
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.view import View
from nimble.errors import PolicyError

# A policy that keeps waking up while nothing runs and nothing arrives will never do anything.
IDLE_WAKES = 10_000
_WHAT = {
    Kind.START: What.START,
    Kind.STOP: What.STOP,
    Kind.MOVE: What.MOVE,
    Kind.RESIZE: What.RESIZE,
}


def simulate(
    topology: Topology, jobs: Sequence[Job], policy: Policy, options: Options | None = None
) -> Result:
    """Runs `jobs` on `topology` under `policy` and says what became of each.

    Deterministic. PolicyError (with the result up to there) if the policy raises, asks for what
    cannot be done, or leaves jobs waiting for ever; InputError if a job can never fit.
    """
    return Simulation(topology, jobs, policy, options or Options()).run()


class Simulation:
    """One run. Times are seconds; at equal times ends come before outages before arrivals."""

    def __init__(
        self, topology: Topology, jobs: Sequence[Job], policy: Policy, options: Options
    ) -> None:
        self.submitted = check_jobs(topology, jobs)
        self.topology = topology
        self.jobs = jobs
        self.policy = policy
        self.name = str(getattr(policy, "name", type(policy).__name__))
        self.options = options
        check_quotas(options.rules, jobs)
        # Only where there are rules: most runs have none.
        self.keeper = Keeper(topology, options.rules) if options.rules != Rules() else None
        self.fleet = fleet_of(topology, options, self.keeper.classes if self.keeper else 1)
        self.view = View(
            topology,
            self.fleet,
            rules=options.rules,
            keeper=self.keeper,
            collective=options.collective,
            lease_s=getattr(policy, "lease_s", inf),
            tick_s=getattr(policy, "tick_s", 0.0),
        )
        self.record = Record()
        self.columns = Columns(len(jobs))
        self.memory: Memory = policy.start() if hasattr(policy, "start") else {}
        self.view.memory = self.memory
        self._hold = getattr(policy, "hold", None)
        self._kind = getattr(policy, "kind", None)
        self.placements = [0] * len(topology.tiers)
        self.peak_queue = 0
        self.events = 0
        self.decisions = 0
        self.now = 0.0
        self.ended: list[JobState] = []  # at this event
        self.last: tuple[str, Job | None] = ("start", None)  # the event before a decision
        self._arrivals = in_order(jobs, self.submitted)
        self._next = next(self._arrivals, None)
        self._wake = inf
        self._idle = 0
        self._machines = [(o.until_s, 0, o.machine) for o in options.outages]
        self._machines += [(o.at_s, 1, o.machine) for o in options.outages]
        self._machines += [(at, 2, -1) for at in (self.keeper.times() if self.keeper else ())]
        heapify(self._machines)
        self._down = [0] * len(topology.machines)
        self._ledger = Ledger(self) if options.invariants else None

    def run(self) -> Result:
        try:
            self._loop()
        except PolicyError as error:
            self.view.discard()
            error.result = self.result()
            raise
        return self.result()

    def _loop(self) -> None:
        fleet, view = self.fleet, self.view
        while True:
            ends, job = fleet.next()
            arrives = self._next[1].submit_s if self._next is not None else inf
            breaks = self._machines[0][0] if self._machines else inf
            now = min(ends, arrives, breaks, self._wake)
            if now > self.options.until_s:
                self.now = view.now = self.options.until_s
                return
            if now == inf or (self._next is None and not view.jobs):
                break
            self.now = view.now = now
            self.ended = view.ended = []
            if self._wake <= now:
                self.last = ("wake-up", None)
                self.events += 1
                self._idle = 0 if view.running or arrives < inf else self._idle + 1
            while ends <= now:
                self._finish(view.running[job])
                ends, job = fleet.next()
            while self._machines and self._machines[0][0] <= now:
                self._machine(heappop(self._machines))
            while self._next is not None and self._next[1].submit_s <= now:
                self._arrive(*self._next)
                self._next = next(self._arrivals, None)
            self._decide()
            self._settle()
            if self._ledger is not None:
                self._ledger.check()
        if view.waiting:
            state = next(iter(view.waiting))
            raise self._wrong(
                f"left {len(view.waiting)} jobs waiting for ever, the first of them {_name(state)}"
                f" with a demand of {state.demand} GPUs; {view.free} of {self.topology.gpus} "
                "are free. Start it, or give a wake_at"
            )

    def _arrive(self, row: int, job: Job) -> None:
        state = JobState(job, self.view.ideal_s(job), self.options.rules.group(job), row)
        state.kind = self._kind(job) if self._kind else ""
        self.view.jobs[job.id] = state
        self.last = ("arrival", job)
        self.events += 1
        self.record.add(self.now, What.SUBMIT, job.id, (), "submitted", ())
        self._wait(state)

    def _wait(self, state: JobState) -> None:
        try:
            rank = self.policy.rank(state, self.view)
        except Exception as error:
            raise self._wrong(f"raised {error!r} in rank({_name(state)})") from error
        state.rank = (-state.job.priority, rank, state.id)
        self.view.waiting.add(state)

    def _finish(self, state: JobState) -> None:
        self._leave(state)
        state.done = float(state.job.iterations)
        state.finished = True
        del self.view.jobs[state.id]
        self.columns.write(state, self.now)
        self.ended.append(state)
        self.last = ("end", state.job)
        self.events += 1
        self.record.add(self.now, What.FINISH, state.id, (), "finished", ())

    def _machine(self, event: tuple[float, int, int]) -> None:
        _, fails, machine = event
        if machine < 0:
            self._rules_change()
            return
        name = self.topology.names[machine]
        self.last = (f"{'failure' if fails else 'repair'} of {name}", None)
        self.events += 1
        self.record.add(self.now, What.DOWN if fails else What.UP, -1, (), "", (machine,))
        # Outages of one machine may overlap: it is up when none is left.
        self._down[machine] += 1 if fails else -1
        self._open(machine)
        if fails:
            for state in self._on(machine):
                self._lose(state, machine)

    def _open(self, machine: int) -> None:
        drained = self.keeper is not None and machine in self.keeper.drained
        self.fleet.set_open(machine, not self._down[machine] and not drained)

    def _on(self, machine: int) -> list[JobState]:
        running = self.view.running.values()
        return [s for s in running if any(m == machine for m, _ in s.placement)]

    def _rules_change(self) -> None:
        """A reservation or a drain begins or ends."""
        assert self.keeper is not None
        self.last = ("change of the rules", None)
        self.events += 1
        self.keeper.update(self.now)
        for machine, owner in enumerate(self.keeper.owner):
            self.fleet.set_class(machine, owner)
            self._open(machine)
        for machine in sorted(self.keeper.stopped(self.now)):
            for state in self._on(machine):
                self._leave(state)
                state.preemptions += 1
                self.record.add(self.now, What.STOP, state.id, (), "machine_drained", (machine,))
                self._wait(state)

    def _lose(self, state: JobState, machine: int) -> None:
        """A running job loses a machine: it goes back to its last checkpoint and waits."""
        done = self.fleet.done(state.id, self.now)
        self._leave(state, failed=True)
        state.failures += 1
        lost = done - state.done
        state.iterations_s += lost * state.unit_s
        self.record.add(self.now, What.FAIL, state.id, (), "machine_failed", (machine, lost))
        self._wait(state)

    def _leave(self, state: JobState, failed: bool = False) -> None:
        """A running job gives up its GPUs; its amounts are brought up to now."""
        now = self.now
        held_s = now - state.since
        done = self.fleet.fail(state.id, now) if failed else self.fleet.end(state.id, now)
        self.fleet.give(state.placement)
        if self.keeper is not None:
            self.keeper.took(state, -state.gpus)
        del self.view.running[state.id]
        if self._hold:
            self.view.holders.remove(state.id)
        state.run_s += held_s
        state.attained_gpu_s += held_s * state.gpus
        state.iterations_s += (done - state.done) * state.unit_s
        state.done = done
        state.gpus = 0
        state.placement = ()
        state.tier = -1
        state.since = now

    def _enter(self, state: JobState, placement: Placement) -> None:
        """A job takes GPUs and goes on from where it was."""
        now, job = self.now, state.job
        self.fleet.take(placement)
        cost = self.view.cost(job, placement)
        gpus = sum(count for _, count in placement)
        if self.keeper is not None:
            self.keeper.took(state, gpus)
        scale = gpus / job.gpus_max
        state.gpus, state.placement, state.tier = gpus, placement, cost.tier
        state.since = now
        state.unit_s = cost.compute_s / scale
        state.speed = scale / cost.iteration_s
        overhead_s = 0.0
        if state.first_start_s < 0:
            state.first_start_s = now
        else:
            overhead_s = job.checkpoint_s + job.restart_s
            state.overhead_s += overhead_s
        state.resumes_s = now + overhead_s
        self.placements[cost.tier] += 1
        self.view.running[state.id] = state
        self.view._leased(state)
        self.fleet.begin(
            state.id,
            now,
            state.resumes_s,
            state.done,
            job.iterations,
            state.speed,
            job.profile.bytes / cost.iteration_s,
            cost.traffic,
        )
        if self._hold:
            self.view.holders.add(state, self._hold(state, self.view))

    def _decide(self) -> None:
        self.decisions += 1
        memory = self.memory
        if self.options.restart_policy:
            memory = json.loads(json.dumps(memory, allow_nan=False))
        try:
            actions, self.memory, wake_at = self.policy.decide(self.view, memory, self.now)
        except Exception as error:
            raise self._wrong(f"raised {error!r}") from error
        self.view.discard()
        self.view.memory = self.memory
        for action in actions:
            if action.kind is not Kind.START:
                self._give_up(action)
        for action in actions:
            if action.kind is not Kind.STOP:
                self._take_up(action)
        if not wake_at > self.now:
            raise self._wrong(f"asked to be woken at {wake_at} s, which is not later than now")
        self._wake = wake_at
        self.peak_queue = max(self.peak_queue, len(self.view.waiting))
        if actions:
            self._idle = 0
        elif self._idle > IDLE_WAKES:
            self._wake = inf

    def _give_up(self, action: Action) -> None:
        """The first half of a decision: all that is stopped, moved or resized lets its GPUs go."""
        kind, job, _, reason = action
        state = self.view.running.get(job)
        if state is None:
            known = self.view.jobs.get(job)
            raise self._wrong(
                f"wants to {kind} job {job}, which is not in the cluster"
                if known is None
                else f"wants to {kind} {_name(known)}, which waits"
            )
        self._leave(state)
        state.preemptions += 1
        if kind is Kind.STOP:
            self.events += 1
            self.record.add(self.now, What.STOP, job, (), reason.code, reason.numbers)
            self._wait(state)

    def _take_up(self, action: Action) -> None:
        """The second half: GPUs are taken, in the order of the actions."""
        kind, job, placement, reason = action
        state = self.view.jobs.get(job)
        if state is None:
            raise self._wrong(f"wants to {kind} job {job}, which is not in the cluster")
        if state.gpus:
            raise self._wrong(f"wants to {kind} {_name(state)}, which runs")
        self._check_gang(state, placement)
        if kind is Kind.START:
            self.view.waiting.remove(state)
            state.waited_s += self.now - state.since
        self.events += 1
        try:
            self._enter(state, placement)
        except ValueError as error:
            machine = int(str(error))
            raise self._wrong(
                f"put {_name(state)} on {dict(placement)[machine]} GPUs of "
                f"{self.topology.names[machine]}, where {self.fleet.free_in(machine)} are free: "
                "a GPU would be booked twice"
            ) from None
        self.record.add(self.now, _WHAT[kind], job, placement, reason.code, reason.numbers)

    def _check_gang(self, state: JobState, placement: Placement) -> None:
        job = state.job
        gpus = sum(count for _, count in placement)
        if not job.gpus_min <= gpus <= job.gpus_max:
            wanted = f"{job.gpus_min}"
            if job.gpus_max != job.gpus_min:
                wanted += f" to {job.gpus_max}"
            raise self._wrong(f"gave {_name(state)} {gpus} GPUs; its gang is {wanted}")
        machines = [machine for machine, _ in placement]
        if machines != sorted(set(machines)) or not (
            machines and machines[0] >= 0 and machines[-1] < len(self.topology.machines)
        ):
            raise self._wrong(f"gave {_name(state)} {placement}: not distinct machines, ascending")
        if self.keeper is not None:
            room = self.keeper.room(job)
            if gpus > room:
                raise self._wrong(
                    f"gave {_name(state)} {gpus} GPUs; the quota of tenant {job.tenant!r} has "
                    f"{room:.0f} left"
                )
            if not self.keeper.may_use(job, placement):
                raise self._wrong(
                    f"put {_name(state)} on {placement}, of which a machine is being drained or "
                    f"reserved for others than tenant {job.tenant!r}"
                )

    def _settle(self) -> None:
        changed = self.fleet.settle(self.now)
        if self.options.record_rates:
            record = self.record
            for job, share in changed:
                record.rate_at.append(self.now)
                record.rate_job.append(job)
                record.rate_share.append(share)

    def _wrong(self, what: str) -> PolicyError:
        event, job = self.last
        after = event if job is None else f"{event} of job {job.id} ({job.name})"
        return PolicyError(
            f"policy {self.name!r} at {self.now:.10g} s, after the {after}: it {what}"
        )

    def result(self) -> Result:
        """What has happened so far."""
        self.record.end_s = self.now
        for state in self.view.jobs.values():
            done = self.fleet.done(state.id, self.now) if state.gpus else None
            self.columns.write(state, self.now, done)
        return Result(
            topology=self.topology,
            policy=self.name,
            jobs=self.jobs,
            complete=self._next is None and not self.view.jobs,
            submit_s=np.array(self.submitted),
            **self.columns.named(),
            end_s=self.now,
            placements=tuple(self.placements),
            peak_queue=self.peak_queue,
            shared_link_s=self.fleet.shared_link_s(self.now),
            contended_s=self.fleet.slowed_s(self.now),
            events=self.events,
            decisions=self.decisions,
            record=self.record,
            memory=self.memory,
        )


def fleet_of(topology: Topology, options: Options, classes: int = 1) -> Fleet:
    """An empty fleet."""
    return Fleet(
        [machine.gpus for machine in topology.machines],
        list(topology.parent),
        list(topology.capacity),
        options.contention,
        options.checkpoint_every_s,
        classes,
    )


def _name(state: JobState) -> str:
    return f"job {state.id} ({state.job.name})"


__all__ = ["Simulation", "simulate"]
