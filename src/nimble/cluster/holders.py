"""The running jobs in the order in which they would give way, kept only for policies that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any

from sortedcontainers import SortedList

from nimble.cluster.state import JobState


class Holders:
    """Running jobs by GPUs held and by the policy's `hold`, asked once when a job begins to run.

    With as many GPUs, what a policy compares running jobs by (remaining time, attained service)
    keeps their order as time goes by; over different numbers of GPUs it does not. So there is one
    list for each number of GPUs, and `worst_first` compares their ends at the time it is asked.
    Jobs of lower priority stand before all others.
    """

    __slots__ = ("_entries", "_lists")

    def __init__(self) -> None:
        self._lists: dict[int, SortedList] = {}
        self._entries: dict[int, tuple[int, tuple[int, float, int, JobState]]] = {}

    def _add(self, state: JobState, hold: float) -> None:
        entry = (-state.job.priority, hold, state.id, state)
        self._entries[state.id] = (state.gpus, entry)
        held = self._lists.get(state.gpus)
        if held is None:
            held = self._lists[state.gpus] = SortedList()
        held.add(entry)

    def _remove(self, job: int) -> None:
        gpus, entry = self._entries.pop(job)
        self._lists[gpus].remove(entry)

    def worst_first(self, need: Callable[[JobState], Any]) -> Iterator[tuple[Any, JobState]]:
        """Jobs of the lowest priority and then the largest `need` first, and their need. Lazily."""
        heads = []
        for gpus, held in self._lists.items():
            queue = (entry[-1] for entry in reversed(held))
            state = next(queue, None)
            if state is not None:
                heads.append(
                    (_Worst(-state.job.priority, need(state), state.id), gpus, state, queue)
                )
        heapify(heads)
        while heads:
            worst, gpus, state, queue = heads[0]
            yield worst.need, state
            following = next(queue, None)
            if following is None:
                heappop(heads)
            else:
                head = (
                    _Worst(-following.job.priority, need(following), following.id),
                    gpus,
                    following,
                    queue,
                )
                heapreplace(heads, head)


class _Worst:
    """Turns the order around; needs may be tuples."""

    __slots__ = ("key", "need")

    def __init__(self, lowliness: int, need: Any, id: int) -> None:
        self.need = need
        self.key = (lowliness, need, id)

    def __lt__(self, other: _Worst) -> bool:
        return other.key < self.key
