"""What policies share: whom free GPUs are offered to, and who gives way for whom."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from math import floor
from typing import Any

from nimble.cluster.policy import Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View

Offer = tuple[Placement, Reason]


def dealt(draft: Draft, states: Iterable[JobState]) -> Iterator[tuple[JobState, Placement]]:
    """Jobs in this order, each with the GPUs that it has, or else the tightest that are free. Where
    nothing is free for one, jobs like it are not asked."""
    refused: set[tuple[int, str]] = set()
    for state in states:
        key = (state.demand, state.group)
        if key in refused:
            continue
        own = state.gpus and draft.permits(state, state.placement)
        placement = state.placement if own else draft.tightest(state)
        if placement is None:
            refused.add(key)
        else:
            yield state, placement


def offer(
    view: View,
    draft: Draft,
    place: Callable[[JobState], Offer | None],
    first: Iterable[JobState] = (),
) -> None:
    """Asks the waiting jobs by rank where they would start, until every bucket has said no.

    Jobs of a bucket are alike: where `place` gives None for one, the rest of its bucket is not
    asked. `first` are waiting jobs that are asked before all others.
    """
    refused: set[tuple[int, str, str]] = set()
    for state in first:
        key = (state.demand, state.group, state.kind)
        if key not in refused and not _started(draft, state, place):
            refused.add(key)
    heads = []
    for bucket in view.waiting.buckets():
        if (bucket.gpus, bucket.group, bucket.kind) not in refused:
            queue = iter(bucket)
            head = _next(queue, draft.taken)
            if head is not None:
                heads.append((head.rank, head, queue))
    heapify(heads)
    while heads:
        _, state, queue = heads[0]
        following = _next(queue, draft.taken) if _started(draft, state, place) else None
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following.rank, following, queue))


def _started(draft: Draft, state: JobState, place: Callable[[JobState], Offer | None]) -> bool:
    found = place(state)
    if found is not None:
        draft.start(state, *found)
    return found is not None


def _next(queue: Iterator[JobState], taken: Container[int]) -> JobState | None:
    return next((state for state in queue if state.id not in taken), None)


def outranked(
    draft: Draft, state: JobState, mine: Any, worst_first: Iterable[tuple[Any, JobState]]
) -> Iterator[JobState]:
    """Running jobs that would give way to a waiting one with the need `mine`, the worst first.

    Those of lower priority, and those of the same priority that need more. `worst_first`: running
    jobs with their needs, as `view.holders` orders them.
    """
    priority = state.job.priority
    for theirs, holder in worst_first:
        if (-holder.job.priority, theirs) <= (-priority, mine):
            return
        if holder.id not in draft.taken and not draft.is_released(holder):
            yield holder


def take_over(
    view: View, draft: Draft, state: JobState, tier: int, givers: Iterable[JobState]
) -> Placement | None:
    """GPUs for `state` inside one domain of `tier`, from jobs that give way; None if too few.

    The domain is the first to have enough if `givers` leave in their order; those whose GPUs turn
    out not to be needed stay.
    """
    want = state.demand
    have: dict[int, int] = {}
    leaving: dict[int, list[tuple[JobState, int]]] = {}
    above = view.topology.above
    for giver in givers:
        inside: dict[int, int] = {}
        for machine, gpus in giver.placement:
            domain = above(machine, tier)
            inside[domain] = inside.get(domain, 0) + gpus
        for domain, gpus in inside.items():
            leaving.setdefault(domain, []).append((giver, gpus))
            have[domain] = have.get(domain, draft.free_in(domain)) + gpus
            if have[domain] >= want:
                return _evict(draft, state, tier, leaving[domain], have[domain] - want)
    return None


def _evict(
    draft: Draft, state: JobState, tier: int, leaving: list[tuple[JobState, int]], spare: int
) -> Placement | None:
    reason = Reason("outranked", (state.id,))
    mark = draft.mark()
    for giver, gpus in reversed(leaving):
        if gpus <= spare:
            spare -= gpus
        else:
            draft.release(giver, reason)
    placement = draft.fit(state, tier)
    if placement is None:  # a rule stands against it
        draft.back_to(mark)
    return placement


def next_round(now: float, round_s: float) -> float:
    """The next multiple of `round_s`."""
    return (floor(now / round_s) + 1) * round_s


__all__ = ["Offer", "dealt", "next_round", "offer", "outranked", "take_over"]
