"""Gandiva: jobs take turns on the same GPUs; machines take jobs of one size; some move later."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from nimble.cluster.fit import Choice
from nimble.cluster.policies.offer import Offer, offer, take_over
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View


class Gandiva:
    """Knows nothing of jobs but their demand.

    Turns end together, every `lease_s`: then who has waited longest takes over the GPUs of a job
    with the same demand, as they are, or else those of several. GPUs that are idle go to machines
    with an affinity first. A job whose turn ends beside idle GPUs that are closer together moves
    there: as released, only into a single machine; corrected, to any closer tier. As released, a
    job that finds no machine of its kind takes the first idle GPUs; corrected, the tightest.
    """

    name = "gandiva"
    reasons: ClassVar[dict[str, str]] = {
        "affinity": "a machine for jobs of {1:.0f} GPUs had them free, after {0:.0f} s",
        "turn_taken": "took over the turn of job {1:.0f} after {0:.0f} s",
        "turns_taken": "took over the turns of several jobs after {0:.0f} s",
        "turn_ended": "its turn ended, and a job that had waited took its GPUs",
        "migrated": "moved from tier {0:.0f} to tier {1:.0f} at the end of its turn",
    }

    def __init__(self, corrected: bool = True, lease_s: float = 600.0) -> None:
        self.corrected = corrected
        self.lease_s = self.tick_s = lease_s
        if not corrected:
            self.name = "gandiva-released"

    def start(self) -> Memory:
        # Machines by the demand that they have an affinity to.
        return {"machines": {}}

    def rank(self, state: JobState, view: View) -> float:
        return view.now

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        ended = view.expired()
        if view.waiting or ended:
            draft = view.draft()
            for state in ended:
                self._migrate(view, draft, state)
            if view.free:
                offer(view, draft, lambda state: self._idle(view, draft, memory, state))
            if ended and view.waiting:
                turns = [state for state in ended if state.id not in draft.taken]
                offer(view, draft, lambda state: self._turn(view, draft, turns, state))
            return draft.actions(), memory, self._wake(view)
        return (), memory, self._wake(view)

    def _wake(self, view: View) -> float:
        tightest = view.topology.tightest
        strays = any(s.tier > (tightest(s.gpus) or 0) for s in view.running.values())
        return view.next_expiry() if view.waiting or strays else inf

    def _migrate(self, view: View, draft: Draft, state: JobState) -> None:
        best = state.tier if self.corrected else min(state.tier, 1)
        for tier in range(view.topology.tightest(state.gpus) or 0, best):
            closer = draft.fit(state, tier, state.gpus)
            if closer is not None:
                reason = Reason("migrated", (state.tier, tier))
                draft.release(state, reason)
                draft.start(state, closer, reason)
                return

    def _idle(self, view: View, draft: Draft, memory: Memory, state: JobState) -> Offer | None:
        want, waited_s = state.demand, view.now - state.since
        if want > draft.free:
            return None
        for machine in memory["machines"].setdefault(str(want), []):
            if draft.permits(state, ((machine, want),)):
                return ((machine, want),), Reason("affinity", (waited_s, want))
        if self.corrected:
            placement = draft.tightest(state)
        else:
            placement = draft.fit(state, len(view.topology.tiers) - 1, choice=Choice.FIRST)
        if placement is None:
            return None
        self._attach(view, draft, memory, placement, str(want))
        return placement, Reason("tightest_free", (waited_s,))

    def _attach(
        self, view: View, draft: Draft, memory: Memory, placement: Placement, want: str
    ) -> None:
        """A machine that was empty takes jobs of this demand from now on."""
        (machine, _), *more = placement
        if not more and draft.free_in(machine) == view.topology.size[machine]:
            for machines in memory["machines"].values():
                if machine in machines:
                    machines.remove(machine)
            memory["machines"][want].append(machine)

    def _turn(
        self, view: View, draft: Draft, turns: list[JobState], state: JobState
    ) -> Offer | None:
        waited_s = view.now - state.since
        over = [turn for turn in turns if not draft.is_released(turn)]
        for turn in over:
            if turn.gpus == state.demand:
                mark = draft.mark()
                draft.release(turn, Reason("turn_ended"))
                if draft.permits(state, turn.placement):
                    return turn.placement, Reason("turn_taken", (waited_s, turn.id))
                draft.back_to(mark)
        for tier in range(view.topology.tightest(state.demand) or 0, len(view.topology.tiers)):
            placement = take_over(view, draft, state, tier, over)
            if placement is not None:
                return placement, Reason("turns_taken", (waited_s,))
        return None
