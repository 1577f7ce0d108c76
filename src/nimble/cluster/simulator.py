"""The simulator: jobs arrive, a policy decides, time jumps to what happens next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import heapify, heappop
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from nimble.cluster.fleet import Fleet
from nimble.cluster.job import Job
from nimble.cluster.policy import Action, Kind, Memory, Policy
from nimble.cluster.record import Record, What
from nimble.cluster.result import Options, Result
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.view import View
from nimble.errors import InputError, PolicyError

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
        check_jobs(topology, jobs)
        self.topology = topology
        self.jobs = tuple(jobs)
        self.policy = policy
        self.options = options
        self.fleet = Fleet(topology, options.contention)
        self.view = View(
            topology,
            self.fleet,
            rules=options.rules,
            collective=options.collective,
            lease_s=getattr(policy, "lease_s", inf),
            tick_s=getattr(policy, "tick_s", 0.0),
        )
        self.record = Record()
        self.states: dict[int, JobState] = {}
        self.memory: Memory = policy.start() if hasattr(policy, "start") else {}
        self.view.memory = self.memory
        self._hold = getattr(policy, "hold", None)
        self._kind = getattr(policy, "kind", None)
        self.placements = [0] * len(topology.tiers)
        self.peak_queue = 0
        self.events = 0
        self.decisions = 0
        self.now = 0.0
        self.last: tuple[str, int] = ("start", -1)  # the event before a decision, for errors
        self._arrivals = sorted(self.jobs, key=lambda job: (job.submit_s, job.id))
        self._arrived = 0
        self._wake = inf
        self._idle = 0
        self._machines = [(o.until_s, 0, o.machine) for o in options.outages]
        self._machines += [(o.at_s, 1, o.machine) for o in options.outages]
        heapify(self._machines)

    def run(self) -> Result:
        try:
            self._loop()
        except PolicyError as error:
            self.view.discard()
            error.result = self.result()
            raise
        return self.result()

    def _loop(self) -> None:
        arrivals, fleet, view = self._arrivals, self.fleet, self.view
        while True:
            ends = fleet.next()[0]
            arrives = arrivals[self._arrived].submit_s if self._arrived < len(arrivals) else inf
            broken = self._machines[0][0] if self._machines else inf
            now = min(ends, arrives, broken, self._wake)
            if now > self.options.until_s:
                return
            if now == inf:
                break
            self.now = view.now = now
            if self._wake <= now:
                self.last = ("wake-up", -1)
                self.events += 1
                self._idle = 0 if view.running or arrives < inf else self._idle + 1
            while ends <= now:
                self._finish(self.states[fleet.next()[1]])
                ends = fleet.next()[0]
            while self._machines and self._machines[0][0] <= now:
                self._machine(heappop(self._machines))
            while self._arrived < len(arrivals) and arrivals[self._arrived].submit_s <= now:
                self._arrive(arrivals[self._arrived])
                self._arrived += 1
            self._decide()
            self._settle()
        if view.waiting:
            state = next(iter(view.waiting))
            raise self._wrong(
                f"left {len(view.waiting)} jobs waiting for ever, the first of them {_name(state)}"
                f" with a demand of {state.demand} GPUs; {view.free} of {self.topology.gpus} "
                "are free. Start it, or give a wake_at"
            )

    def _arrive(self, job: Job) -> None:
        state = JobState(job, self.view.ideal_s(job))
        self.states[job.id] = self.view.jobs[job.id] = state
        self.last = ("arrival", job.id)
        self.events += 1
        self.record.add(self.now, What.SUBMIT, job.id, (), "submitted", ())
        self._wait(state)

    def _wait(self, state: JobState) -> None:
        try:
            rank = self.policy.rank(state, self.view)
        except Exception as error:
            raise self._wrong(f"raised {error!r} in rank({_name(state)})") from error
        state.rank = (-state.job.priority, rank, state.id)
        kind = self._kind(state.job) if self._kind else ""
        self.view.waiting.add(state, self.options.rules.group(state.job), kind)

    def _finish(self, state: JobState) -> None:
        self._leave(state)
        state.done = float(state.job.iterations)
        state.finished = True
        del self.view.jobs[state.id]
        self.view.ended.append(state)
        self.last = ("end", state.id)
        self.events += 1
        self.record.add(self.now, What.FINISH, state.id, (), "finished", ())

    def _machine(self, event: tuple[float, int, int]) -> None:
        _, fails, machine = event
        self.last = ("failure" if fails else "repair", -1)
        raise InputError(f"outage of machine {machine}: not built yet")

    def _leave(self, state: JobState) -> None:
        """A running job gives up its GPUs; its amounts are brought up to now."""
        now = self.now
        held_s = now - state.since
        done = self.fleet.end(state.id, now)
        self.fleet.give(state.placement)
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
        self.placements[cost.tier] += 1
        self.view.running[state.id] = state
        self.view._leased(state)
        self.fleet.begin(
            state.id,
            now + overhead_s,
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
        self.view.ended.clear()
        for action in actions:
            if action.kind in (Kind.MOVE, Kind.RESIZE):
                self.fleet.give(self.view.jobs[action.job].placement)
                self.view.jobs[action.job].placement = ()
        for action in actions:
            self._act(action)
        if not wake_at > self.now:
            raise self._wrong(f"asked to be woken at {wake_at} s, which is not later than now")
        self._wake = wake_at
        self.peak_queue = max(self.peak_queue, len(self.view.waiting))
        if actions:
            self._idle = 0
        elif self._idle > IDLE_WAKES:
            self._wake = inf

    def _act(self, action: Action) -> None:
        kind, job, placement, reason = action
        state = self.view.jobs.get(job)
        if state is None:
            raise self._wrong(f"wants to {kind} job {job}, which is not in the cluster")
        if (kind is Kind.START) == (state.gpus > 0):
            doing = "runs" if state.gpus else "waits"
            raise self._wrong(f"wants to {kind} {_name(state)}, which {doing}")
        if kind is not Kind.STOP:
            self._check_gang(kind, state, placement)
        self.events += 1
        self.record.add(self.now, _WHAT[kind], job, placement, reason.code, reason.numbers)
        if kind is Kind.START:
            self.view.waiting.remove(state)
            state.waited_s += self.now - state.since
        else:
            self._leave(state)
            state.preemptions += 1
        if kind is Kind.STOP:
            self._wait(state)
            return
        try:
            self._enter(state, placement)
        except ValueError as error:
            machine = int(str(error))
            asked = dict(placement)[machine]
            raise self._wrong(
                f"put {_name(state)} on {asked} GPUs of {self.topology.names[machine]}, where "
                f"{self.fleet.free_in(machine)} are free: a GPU would be booked twice"
            ) from None

    def _check_gang(self, kind: Kind, state: JobState, placement: Placement) -> None:
        job = state.job
        gpus = sum(count for _, count in placement)
        if not job.gpus_min <= gpus <= job.gpus_max:
            wanted = f"{job.gpus_min}"
            if job.gpus_max != job.gpus_min:
                wanted += f" to {job.gpus_max}"
            raise self._wrong(f"gave {_name(state)} {gpus} GPUs; its gang is {wanted}")
        if kind is Kind.MOVE and gpus != state.gpus:
            raise self._wrong(f"moves {_name(state)} from {state.gpus} GPUs to {gpus}: a resize")
        machines = [machine for machine, _ in placement]
        if machines != sorted(set(machines)) or not (
            machines and machines[0] >= 0 and machines[-1] < len(self.topology.machines)
        ):
            raise self._wrong(f"gave {_name(state)} {placement}: not distinct machines, ascending")

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
        after = event if job < 0 else f"{event} of {_name(self.states[job])}"
        name = getattr(self.policy, "name", type(self.policy).__name__)
        return PolicyError(f"policy {name!r} at {self.now:.10g} s, after the {after}: it {what}")

    def result(self) -> Result:
        """What has happened so far."""
        self.record.end_s = self.now
        rows = [_row(job, self.states.get(job.id), self.now) for job in self.jobs]
        columns = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS)).T
        named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))
        named["preemptions"] = named["preemptions"].astype(np.int64)
        return Result(
            topology=self.topology,
            policy=getattr(self.policy, "name", type(self.policy).__name__),
            jobs=self.jobs,
            complete=len(self.states) == len(self.jobs) and not self.view.jobs,
            end_s=self.now,
            placements=tuple(self.placements),
            peak_queue=self.peak_queue,
            shared_link_s=self.fleet.shared_link_s,
            contended_s=0.0,
            events=self.events,
            decisions=self.decisions,
            record=self.record,
            memory=self.memory,
            **named,
        )


_COLUMNS = (
    "submit_s", "first_start_s", "finish_s", "ideal_s", "waited_s", "run_s", "compute_s",
    "overhead_s", "gpu_s", "preemptions",
)  # fmt: skip


def _row(job: Job, state: JobState | None, now: float) -> tuple[float, ...]:
    if state is None:
        return (job.submit_s, nan, nan, nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    on = 0.0 if state.finished else now - state.since
    running = state.gpus > 0
    return (
        job.submit_s,
        state.first_start_s if state.first_start_s >= 0 else nan,
        state.since if state.finished else nan,
        state.ideal_s,
        state.waited_s + (0.0 if running else on),
        state.run_s + (on if running else 0.0),
        state.iterations_s,
        state.overhead_s,
        state.attained_gpu_s + on * state.gpus,
        float(state.preemptions),
    )


def check_jobs(topology: Topology, jobs: Sequence[Job]) -> None:
    """Raises InputError if two jobs share an id or one can never run."""
    ids = set()
    for job in jobs:
        if job.id in ids:
            raise InputError(f"two jobs have the id {job.id}")
        ids.add(job.id)
        if not 1 <= job.gpus_min <= job.gpus_max:
            raise InputError(
                f"job {job.id} ({job.name}) wants {job.gpus_min} to {job.gpus_max} GPUs"
            )
        if job.gpus_min > topology.gpus:
            raise InputError(
                f"job {job.id} ({job.name}) wants {job.gpus_min} GPUs; the cluster has "
                f"{topology.gpus}. Leave it out, or take a larger cluster"
            )
        if job.iterations < 1 or not (job.profile.compute_s > 0 and isfinite(job.submit_s)):
            raise InputError(f"job {job.id} ({job.name}) has no work, or no time of submission")


def _name(state: JobState) -> str:
    return f"job {state.id} ({state.job.name})"


__all__ = ["Simulation", "check_jobs", "simulate"]
