"""A decision in the making: what a policy tries out, seen by nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from nimble._cluster import Fleet
from nimble.cluster.fit import Choice
from nimble.cluster.policy import Action, Kind, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.waiting import Bucket

if TYPE_CHECKING:
    from nimble.cluster.view import View


class _Over:
    """In place of the fleet, once a draft's decision is over."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError("this draft is of an earlier decision; ask view.draft() for a new one")


class Draft:
    """Decisions tried out: what it takes and releases is gone or free for its next question.

    Nothing outside sees it; `actions()` says what it comes to. A policy may also build Actions
    itself: the simulator checks every one again.
    """

    __slots__ = (
        "_actions",
        "_fleet",
        "_journal",
        "_keeper",
        "_released",
        "_spoken",
        "_view",
        "taken",
    )

    def __init__(self, view: View) -> None:
        self._view = view
        self._fleet: Fleet = view._fleet
        self._journal: list[tuple[bool, Sequence[JobState], Placement]] = []
        self._actions: list[Action] = []
        self._released: dict[int, tuple[JobState, Reason]] = {}
        self._keeper = view._keeper
        # GPUs that tenants would hold more than they do now, by this draft.
        self._spoken: Counter[str] = Counter()
        # Ids of the jobs that this draft has started.
        self.taken: set[int] = set()

    @property
    def free(self) -> int:
        return self._fleet.free

    def free_in(self, domain: int) -> int:
        return self._fleet.free_in(domain)

    def buckets(self) -> list[Bucket]:
        """Buckets of waiting jobs that are not empty and want no more than what is free."""
        return self._view.waiting.buckets(self._fleet.free)

    def fit(
        self,
        state: JobState,
        tier: int,
        gpus: int | None = None,
        choice: Choice = Choice.BEST,
    ) -> Placement | None:
        """GPUs for `state` inside one domain of `tier`, or None (fit.py says which).

        `gpus`: other than its demand, for elastic jobs. Rules hold: a tenant at its quota, or GPUs
        reserved for others, give None.
        """
        want = state.job.gpus_min if gpus is None else gpus
        keeper = self._keeper
        if keeper is None:
            return self._fleet.fit(want, tier, choice)
        if want > self._room(state):
            return None
        return self._fleet.fit(want, tier, choice, keeper.allowed(state.job))

    def tightest(self, state: JobState, gpus: int | None = None) -> Placement | None:
        """GPUs for `state` in the lowest tier that has them free now."""
        want = state.job.gpus_min if gpus is None else gpus
        if want > self._fleet.free:
            return None
        for tier, most in enumerate(self._view.topology.largest):
            if most >= want:
                placement = self.fit(state, tier, gpus)
                if placement is not None:
                    return placement
        return None

    def available(self, placement: Placement) -> bool:
        """Whether all of these GPUs are free."""
        return all(self._fleet.free_in(machine) >= gpus for machine, gpus in placement)

    def permits(self, state: JobState, placement: Placement) -> bool:
        """Whether all of these GPUs are free, and the rules let it have them."""
        if not self.available(placement):
            return False
        keeper = self._keeper
        return keeper is None or (
            sum(gpus for _, gpus in placement) <= self._room(state)
            and keeper.may_use(state.job, placement)
        )

    def allows(self, state: JobState) -> bool:
        """Whether the rules would let it start if enough GPUs were free."""
        keeper = self._keeper
        return keeper is None or (
            state.demand <= self._room(state) and keeper.could_start(state.job)
        )

    def _room(self, state: JobState) -> float:
        assert self._keeper is not None
        return self._keeper.room(state.job, self._spoken[state.job.tenant])

    def _speak(self, state: JobState, placement: Placement, sign: int) -> None:
        if self._keeper is not None:
            self._spoken[state.job.tenant] += sign * sum(gpus for _, gpus in placement)

    def start(self, state: JobState, placement: Placement, reason: Reason) -> None:
        """Start a waiting job, or put one that was released on `placement` (maybe its own)."""
        try:
            self._fleet.take(placement)
        except ValueError as error:
            machine = int(str(error))
            raise ValueError(
                f"draft.start({state}): {dict(placement).get(machine)} GPUs of "
                f"{self._view.topology.names[machine]} asked for, "
                f"{self._fleet.free_in(machine)} are free"
            ) from None
        self._journal.append((True, (state,), placement))
        self._speak(state, placement, 1)
        released = self._released.pop(state.id, None)
        if released is None:
            self._actions.append(Action(Kind.START, state.id, placement, reason))
        elif placement != state.placement:
            gpus = sum(count for _, count in placement)
            kind = Kind.MOVE if gpus == state.gpus else Kind.RESIZE
            self._actions.append(Action(kind, state.id, placement, reason))
        self.taken.add(state.id)

    def keep(self, state: JobState) -> bool:
        """Give a job that was released here its own GPUs back, if it can still have them."""
        placement = state.placement
        if self._keeper is not None and not self.permits(state, placement):
            return False
        try:
            self._fleet.take(placement)
        except ValueError:
            return False
        self._journal.append((True, (state,), placement))
        self._speak(state, placement, 1)
        del self._released[state.id]
        self.taken.add(state.id)
        return True

    def release(self, state: JobState, reason: Reason) -> None:
        """Take a running job's GPUs back. Unless started again here, it is preempted."""
        self.release_all((state,), reason)

    def release_all(self, states: Sequence[JobState], reason: Reason) -> None:
        """The same for many at once, which is much cheaper."""
        released, taken = self._released, self.taken
        for state in states:
            job = state.id
            if not state.gpus or job in released or job in taken:
                raise ValueError(f"draft.release({state}): it waits, or was released here before")
            released[job] = (state, reason)
            if self._keeper is not None:
                self._speak(state, state.placement, -1)
        placement = tuple(chain.from_iterable([state.placement for state in states]))
        self._fleet.give(placement)
        self._journal.append((False, states, placement))

    def is_released(self, state: JobState) -> bool:
        """Whether this draft took its GPUs back and has not started it again."""
        return state.id in self._released

    def mark(self) -> int:
        """Where the draft stands, for `back_to`."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Undoes releases made since `mark`. (Starts cannot be undone.)"""
        for took, states, placement in reversed(self._journal[mark:]):
            if took:
                raise ValueError(f"job {states[0].id} was started since: it cannot be undone")
            self._fleet.take(placement, True)
            for state in states:
                self._speak(state, state.placement, 1)
                del self._released[state.id]
        del self._journal[mark:]

    def actions(self) -> list[Action]:
        """What the draft comes to: stops, then moves and resizes, then starts.

        (A job that was released and started again where it was, is left alone.)
        """
        stops = [Action(Kind.STOP, i, (), reason) for i, (_, reason) in self._released.items()]
        changes = [action for action in self._actions if action.kind is not Kind.START]
        starts = [action for action in self._actions if action.kind is Kind.START]
        return stops + changes + starts

    def _undo(self) -> None:
        fleet = self._fleet
        for took, _, placement in reversed(self._journal):
            if took:
                fleet.give(placement)
            else:
                fleet.take(placement, True)
        self._fleet = _OVER


_OVER: Any = _Over()
