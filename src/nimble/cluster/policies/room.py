"""Room for a gang where enough GPUs are free but scattered: small jobs in the way move aside."""

from __future__ import annotations

from collections.abc import Iterator

from nimble.cluster.policy import Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View

# Domains tried, those with the most free GPUs first.
TRIED = 4

Moves = list[tuple[JobState, Placement]]


class Room:
    """Of one decision. Jobs move whole from one machine into another, so that none is slowed; each
    has run for `settled_s`, and all moves for one gang cost at most `worth_s` together."""

    def __init__(self, view: View, draft: Draft, settled_s: float, worth_s: float) -> None:
        self.view = view
        self.draft = draft
        self.settled_s = settled_s
        self.worth_s = worth_s
        self._residents: dict[int, list[JobState]] | None = None
        self._refused: set[tuple[int, str]] = set()

    def make(self, state: JobState, tier: int) -> Placement | None:
        """Moves jobs so that `state` fits into one domain of `tier`; None if that cannot be."""
        key = (state.demand, state.group)
        if state.demand > self.draft.free or key in self._refused:
            return None
        topology = self.view.topology
        free = [self.draft.free_in(machine) for machine in range(len(topology.machines))]
        inside: dict[int, list[int]] = {}
        for machine in range(len(free)):
            inside.setdefault(topology.above(machine, tier), []).append(machine)
        most_free = sorted(inside, key=lambda d: (-sum(free[m] for m in inside[d]), d))
        for domain in most_free[:TRIED]:
            moves = self._moves(state, inside[domain], free)
            placement = None if moves is None else self._carry_out(state, tier, moves)
            if placement is not None:
                return placement
        self._refused.add(key)
        return None

    def _moves(self, state: JobState, machines: list[int], free: list[int]) -> Moves | None:
        """Who leaves these machines, and where to: few jobs, and each to where it fits best."""
        short = state.demand - sum(free[m] for m in machines)
        candidates = [s for m in machines for s in self._movable(m)]
        spare = {m: n for m, n in enumerate(free) if n}
        for machine in machines:
            spare.pop(machine, None)
        moves: Moves = []
        cost_s = 0.0
        while short > 0 and candidates:
            enough = [s for s in candidates if s.gpus >= short]
            leaves = (
                min(enough, key=lambda s: (s.gpus, s.id))
                if enough
                else max(candidates, key=lambda s: (s.gpus, -s.id))
            )
            candidates.remove(leaves)
            target = self._target(leaves, spare)
            if target is None:
                continue
            spare[target] -= leaves.gpus
            short -= leaves.gpus
            cost_s += leaves.job.checkpoint_s + leaves.job.restart_s
            moves.append((leaves, ((target, leaves.gpus),)))
        return moves if short <= 0 and cost_s <= self.worth_s else None

    def _target(self, state: JobState, spare: dict[int, int]) -> int | None:
        """The machine with the fewest spare GPUs that takes it whole, of the kind that it is on."""
        kinds = self.view.topology.machines
        ((here, gpus),) = state.placement
        fits = [
            (n, m)
            for m, n in spare.items()
            if n >= gpus
            and kinds[m].kind == kinds[here].kind
            and self.draft.permits(state, ((m, gpus),))
        ]
        return min(fits)[1] if fits else None

    def _movable(self, machine: int) -> Iterator[JobState]:
        if self._residents is None:
            self._residents = {}
            for state in self.view.running.values():
                if len(state.placement) == 1:
                    self._residents.setdefault(state.placement[0][0], []).append(state)
        for state in self._residents.get(machine, ()):
            if (
                self.view.now - state.since >= self.settled_s
                and state.id not in self.draft.taken
                and not self.draft.is_released(state)
            ):
                yield state

    def _carry_out(self, state: JobState, tier: int, moves: Moves) -> Placement | None:
        """What `state` can have then; None, and nothing moved, if a rule stands against it."""
        reason = Reason("moved_aside", (state.id,))
        mark = self.draft.mark()
        self.draft.release_all([job for job, _ in moves], reason)
        placement = self.draft.fit(state, tier)
        if placement is None:
            self.draft.back_to(mark)
            return None
        for job, there in moves:
            self.draft.start(job, there, reason)
        return placement
