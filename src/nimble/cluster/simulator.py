"""The simulator: jobs arrive, a policy decides, time jumps to what happens next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import heappop
from math import inf

from nimble.cluster.blame import (
    answer_fault,
    gang_fault,
    job_named,
    memory_fault,
    raised,
    shut_out,
)
from nimble.cluster.floor import Floor
from nimble.cluster.invariants import Ledger
from nimble.cluster.job import Job
from nimble.cluster.policy import Action, Kind, Policy, Reason
from nimble.cluster.record import What
from nimble.cluster.result import Options, Result
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.view import set_ended, set_memory, set_now
from nimble.errors import RulesError, SimulationError

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
    cannot be done, or leaves jobs waiting for ever; RulesError (with the same) if it is the rules
    that do; InputError if a job can never fit.
    """
    return Simulation(topology, jobs, policy, options or Options()).run()


class Simulation(Floor):
    """One run. At equal times ends come before outages before arrivals."""

    def __init__(
        self, topology: Topology, jobs: Sequence[Job], policy: Policy, options: Options
    ) -> None:
        super().__init__(topology, jobs, policy, options)
        self._wake = inf
        self._idle = 0
        self._next_look = 1  # at the memory: at every decision whose number is a power of two
        self._ledger = Ledger(self) if options.invariants else None

    def run(self) -> Result:
        try:
            self._begin()
            self._loop()
            self._blame(memory_fault(self.memory))
        except SimulationError as error:
            self.view.discard()
            error.result = self.result()
            raise
        return self.result()

    def _begin(self) -> None:
        if not hasattr(self.policy, "start"):
            return
        try:
            self.memory = self.policy.start()
        except Exception as error:
            raise self._wrong(f"{raised(error, self.policy)} (start)") from error
        set_memory(self.view, self.memory)
        self._blame(memory_fault(self.memory))

    def _loop(self) -> None:
        fleet, view = self.fleet, self.view
        while True:
            ends, job = fleet.next()
            arrives = self._next[1].submit_s if self._next is not None else inf
            breaks = self._machines[0][0] if self._machines else inf
            now = min(ends, arrives, breaks, self._wake)
            if now > self.options.until_s:
                self.now = self.options.until_s
                set_now(view, self.now)
                return
            if now == inf or (self._next is None and not self.present):
                break
            self.now = now
            set_now(view, now)
            self.ended = []
            if self._wake <= now:
                self.last = ("wake-up", None)
                self.events += 1
                self._idle = 0 if self.running or arrives < inf else self._idle + 1
            while ends <= now:
                self._finish(self.running[job])
                ends, job = fleet.next()
            if self.ended or view.ended:
                set_ended(view, tuple(self.ended))
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
            raise self._left_waiting()

    def _decide(self) -> None:
        self.decisions += 1
        memory = self.memory
        if self.options.restart_policy:
            memory = json.loads(json.dumps(memory, allow_nan=False))
        try:
            answer = self.policy.decide(self.view, memory, self.now)
        except Exception as error:
            raise self._wrong(raised(error, self.policy)) from error
        self.view.discard()
        fault = answer_fault(answer)
        if fault is not None:
            raise self._wrong(fault)
        actions, memory, wake_at = answer
        if memory is not self.memory:
            self.memory = memory
            set_memory(self.view, memory)
        if self.decisions >= self._next_look:
            self._next_look *= 2
            self._blame(memory_fault(memory))
        if actions:
            self._carry_out(actions)
        if not wake_at > self.now:
            raise self._wrong(f"asked to be woken at {wake_at} s, which is not later than now")
        self._wake = wake_at
        self.peak_queue = max(self.peak_queue, len(self.view.waiting))
        if actions:
            self._idle = 0
        elif self._idle > IDLE_WAKES:
            self._wake = inf

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if type(action) is not Action or type(action.reason) is not Reason:
                self._blame(f"gave back {action!r}; expected Action(kind, job, placement, reason)")
            if action.kind is not Kind.START:
                self._give_up(action)
        for action in actions:
            if action.kind is not Kind.STOP:
                self._take_up(action)

    def _give_up(self, action: Action) -> None:
        """The first half of a decision: all that is stopped, moved or resized lets its GPUs go."""
        kind, job, _, reason = action
        state = self.running.get(job)
        if state is None:
            known = self.present.get(job)
            raise self._wrong(
                f"wants to {kind} job {job}, which is not in the cluster"
                if known is None
                else f"wants to {kind} {job_named(known)}, which waits"
            )
        self._leave(state, preempted=True)
        if kind is Kind.STOP:
            self.events += 1
            self._note(What.STOP, job, (), reason)
            self._wait(state)

    def _take_up(self, action: Action) -> None:
        """The second half: GPUs are taken, in the order of the actions."""
        kind, job, placement, reason = action
        state = self.present.get(job)
        if state is None:
            raise self._wrong(f"wants to {kind} job {job}, which is not in the cluster")
        if state.gpus:
            raise self._wrong(f"wants to {kind} {job_named(state)}, which runs")
        fault = gang_fault(state, placement, self.topology, self.keeper)
        if fault is not None:
            raise self._wrong(fault)
        waited = kind is Kind.START
        if waited:
            self.view.waiting._remove(state)
        self.events += 1
        try:
            self._enter(state, placement, waited)
        except ValueError as error:
            machine = int(str(error))
            raise self._wrong(
                f"put {job_named(state)} on {dict(placement)[machine]} GPUs of "
                f"{self.topology.names[machine]}, where {self.fleet.free_in(machine)} are free: "
                "a GPU would be booked twice"
            ) from None
        self._note(_WHAT[kind], job, placement, reason)

    def _note(self, what: What, job: int, placement: Placement, reason: Reason) -> None:
        try:
            if len(reason.numbers) > 3:
                raise TypeError
            self.record.add(self.now, what, job, placement, reason.code, reason.numbers)
        except TypeError:
            raise self._wrong(
                f"gave {reason} for job {job}; expected a code and up to three numbers"
            ) from None

    def _blame(self, fault: str | None) -> None:
        if fault is not None:
            raise self._wrong(fault)

    def _settle(self) -> None:
        changed = self.fleet.settle(self.now)
        if self.options.record_rates:
            record = self.record
            for job, share in changed:
                record.rate_at.append(self.now)
                record.rate_job.append(job)
                record.rate_share.append(share)

    def _left_waiting(self) -> SimulationError:
        """Nothing will ever happen again, and jobs wait: because of the rules, or of the policy."""
        waiting = list(self.view.waiting)
        out = shut_out(waiting, self.topology, self.keeper, self._down)
        if len(out) == len(waiting):
            state = waiting[0]
            return RulesError(
                f"at {self.now:.10g} s the rules leave {len(out)} jobs waiting for ever, the first "
                f"of them {job_named(state)} of tenant {state.job.tenant!r}: it wants "
                f"{state.demand} GPUs, and reservations, drains and outages that do not end leave "
                f"it {out[state.id]} of {self.topology.gpus}. Give them an end, or leave it out"
            )
        state = next(one for one in waiting if one.id not in out)
        besides = f" (and {len(out)} that the rules shut out)" if out else ""
        return self._wrong(
            f"left {len(waiting) - len(out)} jobs waiting for ever{besides}, the first of them "
            f"{job_named(state)} with a demand of {state.demand} GPUs; {self.view.free} of "
            f"{self.topology.gpus} are free. Start it, or give a wake_at"
        )


__all__ = ["Simulation", "simulate"]
