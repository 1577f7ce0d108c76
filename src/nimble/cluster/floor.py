"""The cluster that is simulated: jobs come, wait, take GPUs, give them up, end; machines fail.

Who decides, and what happens next, is in simulator.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify
from math import inf

import numpy as np

from nimble._cluster import Fleet
from nimble.cluster.blame import job_named, raised
from nimble.cluster.columns import Columns
from nimble.cluster.intake import check_jobs, in_order
from nimble.cluster.job import Job
from nimble.cluster.keeper import Keeper, check_quotas
from nimble.cluster.policy import Memory, Policy
from nimble.cluster.record import Record, What
from nimble.cluster.result import Options, Result
from nimble.cluster.rules import Rules
from nimble.cluster.state import JobState, Writable, become
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.view import View
from nimble.errors import InputError, PolicyError


class Floor:
    """One run's jobs and machines. Times are seconds."""

    def __init__(
        self, topology: Topology, jobs: Sequence[Job], policy: Policy, options: Options
    ) -> None:
        self.submitted = check_jobs(topology, jobs)
        self.topology = topology
        self.jobs = jobs
        self.policy = policy
        self.name = str(getattr(policy, "name", type(policy).__name__))
        self.options = options
        lease_s = getattr(policy, "lease_s", inf)
        if not lease_s > 0:
            raise InputError(f"policy {self.name!r}: leases of {lease_s:g} s; expected more than 0")
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
            lease_s=lease_s,
            tick_s=getattr(policy, "tick_s", 0.0),
        )
        # The same dicts that the view shows.
        self.running, self.present = self.view._running, self.view._jobs
        self.record = Record()
        self.columns = Columns(len(jobs))
        self.memory: Memory = {}
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
        self._machines = [(o.until_s, 0, o.machine) for o in options.outages]
        self._machines += [(o.at_s, 1, o.machine) for o in options.outages]
        self._machines += [(at, 2, -1) for at in (self.keeper.times() if self.keeper else ())]
        heapify(self._machines)
        self._down = [0] * len(topology.machines)

    def _arrive(self, row: int, job: Job) -> None:
        self.last = ("arrival", job)
        state = Writable(job, self.view.ideal_s(job), self.options.rules.group(job), row)
        if self._kind:
            try:
                state.kind = self._kind(job)
            except Exception as error:
                raise self._raised(error, f"kind({job.name})") from error
        become(state, JobState)
        self.present[job.id] = state
        self.events += 1
        self.record.add(self.now, What.SUBMIT, job.id, (), "submitted", ())
        self._wait(state)

    def _wait(self, state: JobState) -> None:
        try:
            rank = self.policy.rank(state, self.view)
        except Exception as error:
            raise self._raised(error, f"rank({state})") from error
        _set_rank(state, (-state.job.priority, rank, state.id))
        try:
            self.view.waiting._add(state)
        except TypeError as error:
            raise self._wrong(
                f"ranked {job_named(state)} {rank!r}, which cannot be compared with another job's "
                f"rank ({error})"
            ) from error

    def _finish(self, state: JobState) -> None:
        self._leave(state, finished=True)
        del self.present[state.id]
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
        running = self.running.values()
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
                self._leave(state, preempted=True)
                self.record.add(self.now, What.STOP, state.id, (), "machine_drained", (machine,))
                self._wait(state)

    def _lose(self, state: JobState, machine: int) -> None:
        """A running job loses a machine: it goes back to its last checkpoint and waits."""
        done = self.fleet.done(state.id, self.now)
        self._leave(state, failed=True)
        lost = done - state.done
        become(state, Writable)
        state.failures += 1
        state.iterations_s += lost * state.unit_s
        become(state, JobState)
        self.record.add(self.now, What.FAIL, state.id, (), "machine_failed", (machine, lost))
        self._wait(state)

    def _leave(
        self,
        state: JobState,
        failed: bool = False,
        preempted: bool = False,
        finished: bool = False,
    ) -> None:
        """A running job gives up its GPUs; its amounts are brought up to now."""
        now = self.now
        held_s = now - state.since
        done = self.fleet.fail(state.id, now) if failed else self.fleet.end(state.id, now)
        self.fleet.give(state.placement)
        if self.keeper is not None:
            self.keeper.took(state, -state.gpus)
        del self.running[state.id]
        if self._hold:
            self.view.holders._remove(state.id)
        become(state, Writable)
        state.run_s += held_s
        state.attained_gpu_s += held_s * state.gpus
        state.iterations_s += (done - state.done) * state.unit_s
        state.done = done
        state.gpus = 0
        state.placement = ()
        state.tier = -1
        state.since = now
        state.preemptions += preempted
        if finished:
            state.done = float(state.job.iterations)
            state.finished = True
        become(state, JobState)

    def _enter(self, state: JobState, placement: Placement, waited: bool) -> None:
        """A job takes GPUs and goes on from where it was."""
        now, job = self.now, state.job
        self.fleet.take(placement)
        cost = self.view.cost(job, placement)
        gpus = sum(count for _, count in placement)
        if self.keeper is not None:
            self.keeper.took(state, gpus)
        scale = gpus / job.gpus_max
        become(state, Writable)
        if waited:
            state.waited_s += now - state.since
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
        become(state, JobState)
        self.placements[cost.tier] += 1
        self.running[state.id] = state
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
            try:
                hold = self._hold(state, self.view)
            except Exception as error:
                raise self._raised(error, f"hold({state})") from error
            self.view.holders._add(state, hold)

    def _raised(self, error: Exception, asked: str) -> PolicyError:
        return self._wrong(f"{raised(error, self.policy)}, asked for {asked}")

    def _wrong(self, what: str) -> PolicyError:
        event, job = self.last
        after = event if job is None else f"{event} of job {job.id} ({job.name})"
        return PolicyError(
            f"policy {self.name!r} at {self.now:.10g} s, after the {after}: it {what}"
        )

    def result(self) -> Result:
        """What has happened so far."""
        self.record.end_s = self.now
        for state in self.present.values():
            done = self.fleet.done(state.id, self.now) if state.gpus else None
            self.columns.write(state, self.now, done)
        return Result(
            topology=self.topology,
            policy=self.name,
            jobs=self.jobs,
            complete=self._next is None and not self.present,
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


_set_rank = JobState.__dict__["rank"].__set__
