"""The waiting jobs, indexed so that a long queue is never scanned."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge

from sortedcontainers import SortedList

from nimble.cluster.state import JobState


class Bucket:
    """Waiting jobs with the same demand to which the same rules apply: one fits where all fit."""

    __slots__ = ("_by_since", "_ranked", "gpus", "group", "kind")

    def __init__(self, gpus: int, group: str, kind: str = "") -> None:
        self.gpus = gpus  # Job.gpus_min of each of its jobs
        self.group = group  # Rules.group of each of its jobs
        self.kind = kind  # the policy's `kind` of each of its jobs
        self._ranked = SortedList()
        self._by_since: dict[int, JobState] = {}  # jobs begin to wait in the order of time

    def __len__(self) -> int:
        return len(self._by_since)

    def __iter__(self) -> Iterator[JobState]:
        """By rank. Lazily: taking the first few of a long queue is cheap."""
        return (entry[-1] for entry in self._ranked)

    def first(self, without: Collection[int] = ()) -> JobState | None:
        """The first by rank whose id is not in `without`."""
        for entry in self._ranked:
            if entry[-2] not in without:
                state: JobState = entry[-1]
                return state
        return None

    def oldest(self, without: Collection[int] = ()) -> JobState | None:
        """The one that has waited longest."""
        for state in self._by_since.values():
            if state.id not in without:
                return state
        return None

    def first_since(self, before: float, without: Collection[int] = ()) -> JobState | None:
        """The first by rank of those waiting since `before` or longer."""
        best: JobState | None = None
        for state in self._by_since.values():
            if state.since > before:
                break
            if (best is None or state.rank < best.rank) and state.id not in without:
                best = state
        return best

    def ripe(self, now: float, wait_s: float, without: Collection[int] = ()) -> JobState | None:
        """The first by rank of those that have waited at least `wait_s`.

        Asked again at `since + wait_s` of a job, this job has.
        """
        best: JobState | None = None
        for state in self._by_since.values():
            if state.since + wait_s > now:
                break
            if (best is None or state.rank < best.rank) and state.id not in without:
                best = state
        return best

    def by_since(self) -> Iterator[JobState]:
        """The longest waiting first."""
        return iter(self._by_since.values())

    def newest(self) -> Iterator[JobState]:
        """The last to begin to wait first."""
        return reversed(self._by_since.values())

    def _add(self, state: JobState) -> None:
        self._ranked.add((*state.rank, state))
        self._by_since[state.id] = state

    def _remove(self, state: JobState) -> None:
        self._ranked.remove((*state.rank, state))
        del self._by_since[state.id]


class Waiting:
    """All waiting jobs, in buckets."""

    __slots__ = ("_buckets", "_count", "_keys")

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, str, str], Bucket] = {}
        self._keys: list[Bucket] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[JobState]:
        """By rank, lazily."""
        return (entry[-1] for entry in merge(*(bucket._ranked for bucket in self._keys)))

    def buckets(self, most: int | None = None) -> list[Bucket]:
        """The buckets that are not empty, the smallest demand first; with a demand up to `most`."""
        if most is None:
            return [bucket for bucket in self._keys if bucket._by_since]
        return [bucket for bucket in self._keys if bucket.gpus <= most and bucket._by_since]

    def _add(self, state: JobState) -> None:
        key = (state.job.gpus_min, state.group, state.kind)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(*key)
            self._keys = [self._buckets[key] for key in sorted(self._buckets)]
        bucket._add(state)
        self._count += 1

    def _remove(self, state: JobState) -> None:
        self._buckets[state.job.gpus_min, state.group, state.kind]._remove(state)
        self._count -= 1
