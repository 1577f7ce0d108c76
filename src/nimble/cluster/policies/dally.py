"""Dally: delay scheduling, the most network-slowed job first, leases, timers that tune themselves.

A job waits for GPUs inside one machine; when it has waited `rack` leases it takes them inside one
rack, after `network` leases anywhere. What it can never get (more GPUs than a machine has) it does
not wait for. The timers follow how long jobs of the same demand had to wait so far. A lease that
ends while others wait puts its job's GPUs up for a new bid, in which the job takes part: it keeps
them unless a job that was slowed more takes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import ceil, inf, sqrt
from typing import Any, NamedTuple

from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View
from nimble.cluster.waiting import Bucket

LEASE_ENDED = Reason("lease_ended")
LEASE_BETTER = Reason("lease_better")
FITS = ("fits_machine", "fits_rack", "fits_network")
TIMED = ("fits_machine", "rack_timer", "network_timer")


class Bid(NamedTuple):
    """The job of a bucket that would take GPUs next."""

    rank: tuple[Any, ...]
    state: JobState
    bucket: Bucket
    placement: Placement
    reach: int  # 0 a machine, 1 a rack, 2 the network
    timer: float
    taken: int  # how many the draft had started when the bid was made


class Dally:
    """`history` H, in leases, bounds the timers and what the tuner remembers.

    `rack` and `network`: fixed timers in leases, instead of tuned ones; 0 and 0 never wait.
    """

    def __init__(
        self,
        lease_s: float = 600.0,
        history: int = 24,
        rack: float | None = None,
        network: float | None = None,
        tick_s: float | None = None,
        name: str = "dally",
    ) -> None:
        self.name = name
        self.lease_s = lease_s
        self.history = history
        self.fixed = (0.0, rack, network)
        # Leases end together, so that one bid is for whole machines and racks: GPUs that come up a
        # job at a time are too few for a large job, whose timers then run out.
        self.tick_s = lease_s if tick_s is None else tick_s

    def start(self) -> Memory:
        return {"machine": {}, "rack": {}}

    def rank(self, state: JobState, view: View) -> tuple[float, float]:
        """Work done per time spent, relative to the ideal: low if slowed by bad placements."""
        return _score(state.done / state.job.iterations, state.run_s, state.ideal_s), state.since

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        waiting = len(view.waiting)
        if not waiting:
            return (), memory, inf
        draft = view.draft()
        ripe_at = inf
        if view.free:
            ripe_at = self._auction(draft, view, memory, *self._bids(draft, view, memory))
            if len(draft.taken) == waiting:
                return draft.actions(), memory, inf
        ended = view.expired()
        if ended:
            ripe_at = min(ripe_at, self._rebid(draft, view, memory, ended))
        return draft.actions(), memory, min(ripe_at, view.next_expiry())

    def _rebid(self, draft: Draft, view: View, memory: Memory, ended: list[JobState]) -> float:
        """Offers the GPUs of jobs whose lease has ended; says when a timer runs out."""
        mark = draft.mark()
        bids: list[Bid] = []
        ripe_at = inf
        if view.waiting.buckets(draft.free + sum(state.gpus for state in ended)):
            draft.release_all(ended, LEASE_ENDED)
            bids, ripe_at = self._bids(draft, view, memory)
        if not bids:  # nobody can use them: all keep theirs, but for closer ones
            draft.back_to(mark)
            largest = view.topology.largest
            ended = [s for s in ended if s.tier and largest[s.tier - 1] >= s.gpus]
            if ended:
                draft.release_all(ended, LEASE_ENDED)
        holders = []
        for state in ended:
            score = _score(view.done(state), view.run_s(state), state.ideal_s)
            holders.append(((-state.job.priority, (score, state.since), state.id), state))
        return self._auction(draft, view, memory, bids, ripe_at, holders)

    def _bids(self, draft: Draft, view: View, memory: Memory) -> tuple[list[Bid], float]:
        bids: list[Bid] = []
        ripe_at = inf
        for bucket in draft.buckets():
            bid, ripens = self._bid(draft, bucket, view, memory)
            ripe_at = min(ripe_at, ripens)
            if bid is not None:
                bids.append(bid)
        return bids, ripe_at

    def _auction(
        self,
        draft: Draft,
        view: View,
        memory: Memory,
        bids: list[Bid],
        ripe_at: float,
        holders: Iterable[tuple[tuple[Any, ...], JobState]] = (),
    ) -> float:
        """By rank, waiting jobs take what they bid for and holders keep what they have.

        Gives the time at which the first timer runs out of a job that could then take more.
        """
        heapify(bids)
        for rank, state in sorted(holders):
            while bids and bids[0].rank < rank:
                ripe_at = min(ripe_at, self._serve(draft, view, memory, bids))
            self._keep(draft, state, view)
        while bids:
            ripe_at = min(ripe_at, self._serve(draft, view, memory, bids))
        return ripe_at

    def _serve(self, draft: Draft, view: View, memory: Memory, bids: list[Bid]) -> float:
        """The first takes what it bids for; then its bucket bids again."""
        best = heappop(bids)
        if best.taken == len(draft.taken):
            self._take(draft, best, memory, view.now)
            if len(best.bucket) == 1:
                return inf
        # What was taken since the bid may change what the bucket can bid.
        bid, ripe_at = self._bid(draft, best.bucket, view, memory)
        if bid is not None:
            heappush(bids, bid)
        return ripe_at

    def _bid(
        self, draft: Draft, bucket: Bucket, view: View, memory: Memory
    ) -> tuple[Bid | None, float]:
        """Who of a bucket would take what is free, and when somebody else's timer runs out."""
        taken = draft.taken
        state = bucket.first(taken)
        if state is None or bucket.gpus > draft.free:
            return None, inf
        top = len(view.topology.tiers) - 1
        tightest = view.topology.tightest(bucket.gpus) or 0
        ripe_at = inf
        for tier in range(tightest, top + 1):
            placement = draft.fit(state, tier)
            if placement is None:
                continue
            reach = 0 if tier == 0 else 2 if tier == top else 1
            if tier == tightest:
                return Bid(state.rank, state, bucket, placement, reach, 0.0, len(taken)), inf
            timer = self.timer(memory, reach, bucket.gpus, view.now)
            wait_s = timer * self.lease_s
            ripe = bucket.ripe(view.now, wait_s, taken)
            if ripe is not None:
                return Bid(ripe.rank, ripe, bucket, placement, reach, timer, len(taken)), inf
            oldest = bucket.oldest(taken)
            if oldest is not None:
                ripe_at = min(ripe_at, oldest.since + wait_s)
        return None, ripe_at

    def _take(self, draft: Draft, bid: Bid, memory: Memory, now: float) -> None:
        waited_s = now - bid.state.since
        leases = waited_s / self.lease_s
        code = TIMED[bid.reach] if bid.timer else FITS[bid.reach]
        draft.start(bid.state, bid.placement, Reason(code, (waited_s, leases, bid.timer)))
        if bid.reach < 2 and leases >= 1:
            _remember(memory["rack" if bid.reach else "machine"], bid.state.demand, now, leases)

    def _keep(self, draft: Draft, state: JobState, view: View) -> None:
        """A job whose lease has ended takes closer GPUs, or keeps its own if nobody took them."""
        tightest = view.topology.tightest(state.gpus) or 0 if state.tier else 0
        for tier in range(tightest, state.tier):
            closer = draft.fit(state, tier, state.gpus)
            if closer is not None:
                draft.start(state, closer, LEASE_BETTER)
                return
        if draft.keep(state):
            return
        elsewhere = draft.fit(state, tightest, state.gpus)
        if elsewhere is not None:
            draft.start(state, elsewhere, LEASE_BETTER)

    def why_waiting(self, state: JobState, view: View, memory: Memory, now: float) -> Reason:
        """What it waits for, and how long it will before it takes less."""
        top = len(view.topology.tiers) - 1
        tightest = view.topology.tightest(state.demand) or 0
        for tier in range(tightest + 1, top + 1):
            reach = 2 if tier == top else 1
            wait_s = self.timer(memory, reach, state.demand, now) * self.lease_s
            if now < state.since + wait_s:
                code = "waits_rack" if tier > 1 else "waits_machine"
                return Reason(code, (state.demand, state.since + wait_s - now))
        return Reason("waits_gpus", (state.demand, view.free))

    def timer(self, memory: Memory, reach: int, gpus: int, now: float) -> float:
        """Leases to wait before a rack (1) or the network (2) is taken."""
        fixed = self.fixed[reach]
        if fixed is not None:
            return fixed
        least, most = (6, ceil(0.8 * self.history)) if reach == 1 else (12, self.history)
        delays: dict[str, Any] | None = memory["machine" if reach == 1 else "rack"].get(str(gpus))
        if delays is None:
            return min(most, least)
        _forget(delays, now - self.history * self.lease_s)
        count = len(delays["at"])
        if not count:
            return min(most, least)
        mean: float = delays["sum"] / count
        spread = sqrt(max(0.0, delays["squares"] / count - mean * mean))
        return min(most, max(least, ceil(mean + 2 * spread)))


def _remember(delays: dict[str, Any], gpus: int, now: float, leases: float) -> None:
    """A wait of a job with this demand; sums are kept so that a timer costs no pass over them."""
    of = delays.setdefault(str(gpus), {"at": [], "leases": [], "sum": 0.0, "squares": 0.0})
    of["at"].append(now)
    of["leases"].append(leases)
    of["sum"] += leases
    of["squares"] += leases * leases


def _forget(delays: dict[str, Any], before: float) -> None:
    old = bisect_left(delays["at"], before)
    if not old:
        return
    del delays["at"][:old]
    del delays["leases"][:old]
    # Added up again rather than taken away: no rounding is left behind.
    delays["sum"] = sum(delays["leases"])
    delays["squares"] = sum(leases * leases for leases in delays["leases"])


def _score(done: float, run_s: float, ideal_s: float) -> float:
    return done * ideal_s / run_s if run_s > 0 else 0.0
