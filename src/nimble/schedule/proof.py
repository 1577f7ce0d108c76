"""The proof that a schedule has no race and that every read finds what the graph says it does.

It takes nothing from the code that builds schedules: what happens before what is computed anew from
streams and waits alone, and bytes from the offsets. A replay starts when the one before it has
ended, and finds in the states what that one left; nothing else is read before it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nimble.errors import ProofError
from nimble.schedule.clocks import Clocks
from nimble.schedule.layout import Layout, check_graph
from nimble.schedule.parts import Parts
from nimble.schedule.plan import Schedule

Tasks: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.int64]
_PROVEN = "_proven"
"""Kept with the schedule, and not by `dataclasses.replace`."""


def prove(schedule: Schedule) -> None:
    """Raise ProofError, naming the tasks and values, unless the schedule is safe to execute.

    For every value V: each task that writes V happens before each that reads it, and every other
    task that writes bytes of V happens before all of V's writers, or after all of V's writers and
    readers. Outputs are also read at the end. So are the last versions of states, but they need no
    check of their own: no other value has their bytes, and older versions come before them.

    A schedule cannot change, so that one which was proven is not proven again.
    """
    if schedule.__dict__.get(_PROVEN):
        return
    graph = schedule.graph
    check_graph(graph)
    layout = Layout(graph, schedule.offsets, schedule.arena_bytes)
    proof = _Proof(
        layout, Clocks(graph, schedule.streams, schedule.waits), Parts(layout), _writes(layout)
    )
    readers: dict[int, list[int]] = {}
    for t, task in enumerate(graph.tasks):
        for v in dict.fromkeys(task.reads):
            readers.setdefault(v, []).append(t)
    at_end = set(graph.outputs)
    for v in sorted({*readers, *at_end, *(v for task in graph.tasks for v in task.writes)}):
        proof.check(v, np.array(readers.get(v, ()), np.int64), v in at_end)
    schedule.__dict__[_PROVEN] = True


@dataclass(frozen=True, slots=True)
class _Writes:
    """All writes to one space, as columns."""

    tasks: NDArray[np.int64]
    values: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    homes: NDArray[np.int64]
    versions: NDArray[np.int64]


def _writes(layout: Layout) -> dict[int, _Writes]:
    rows: dict[int, list[tuple[int, ...]]] = {}
    columns = (layout.start, layout.stop, layout.home, layout.version)
    for t, task in enumerate(layout.graph.tasks):
        for v in task.writes:
            row = (t, v, *(column[v] for column in columns))
            rows.setdefault(layout.space[v], []).append(row)
    return {space: _Writes(*np.array(found, np.int64).T) for space, found in rows.items()}


@dataclass(frozen=True, slots=True)
class _Proof:
    layout: Layout
    clocks: Clocks
    parts: Parts
    writes: dict[int, _Writes]

    def check(self, v: int, readers: Tasks, at_end: bool) -> None:
        """Every use of the value `v`, against all tasks that write any of its bytes."""
        if len(readers) or at_end:
            self.parts.check_written(v)
        writes = self.writes.get(self.layout.space[v])
        if writes is None:
            return
        start, stop = self.layout.start[v], self.layout.stop[v]
        touching = (writes.starts < stop) & (writes.stops > start) & (start < stop)
        touching &= writes.starts < writes.stops
        here = touching & (writes.homes == self.layout.home[v])
        newer = here & (writes.versions > self.layout.version[v])
        itself = writes.values == v
        own = (here & ~newer) | itself
        foreign = touching & ~here
        self._check_own(v, readers, writes.tasks[own], writes.values[own])
        if newer.any():
            users = np.concatenate([readers, writes.tasks[itself]])
            self._check_newer(v, users, at_end, writes.tasks[newer], writes.values[newer])
        if foreign.any():
            writers = writes.tasks[own]
            users = np.concatenate([readers, writers])
            early = self.clocks.before(writes.tasks[foreign], writers).all(axis=1)
            late = self.clocks.before(users, writes.tasks[foreign]).all(axis=0) & (not at_end)
            if not (early | late).all():
                n = np.flatnonzero(foreign)[int((early | late).argmin())]
                self._fail_shared(v, users, at_end, int(writes.tasks[n]), int(writes.values[n]))

    def _check_own(self, v: int, readers: Tasks, writers: Tasks, written: Values) -> None:
        """Whoever writes the value, or an older version that shows through, does so first, unless
        it is other elements of the same contents that they write."""
        for w, r in np.argwhere(~self.clocks.before(writers, readers)).tolist():
            part = int(written[w])
            same = part != v and self.layout.content[part] == self.layout.content[v]
            if same and self.parts.apart(part, v):
                continue
            if writers[w] != readers[r]:
                raise ProofError(
                    f"{self.clocks.name(readers[r])} reads {self.layout.name(v)}, but not after "
                    f"{self.clocks.name(writers[w])} wrote {self.layout.name(part)}"
                )
            raise ProofError(
                f"{self.clocks.name(readers[r])} reads {self.layout.name(v)} while it writes "
                f"{self.layout.name(part)} to the same bytes"
            )

    def _check_newer(
        self, v: int, users: Tasks, at_end: bool, tasks: Tasks, written: Values
    ) -> None:
        """Newer versions come after all use of this one; who reads this one may write the next."""
        if at_end:
            raise ProofError(
                f"{self.layout.name(v)} is read at the end of the replay, but "
                f"{self.clocks.name(tasks[0])} writes {self.layout.name(written[0])} over it"
            )
        graph = self.layout.graph
        for u, n in np.argwhere(~self.clocks.before(users, tasks)).tolist():
            in_place = (
                graph[self.layout.content[written[n]]].overwrites == self.layout.content[v]
                and v not in graph.tasks[users[u]].writes
            )
            if users[u] != tasks[n] or not in_place:
                raise ProofError(
                    f"{self.clocks.name(tasks[n])} writes {self.layout.name(written[n])} over "
                    f"{self.layout.name(v)}, but not after {self.clocks.name(users[u])} used it"
                )

    def _fail_shared(self, v: int, users: Tasks, at_end: bool, task: int, written: int) -> None:
        late = self.clocks.before(users, np.array([task]))[:, 0]
        user = "the caller" if at_end else self.clocks.name(users[late.argmin()])
        raise ProofError(
            f"{self.clocks.name(task)} writes {self.layout.name(written)} to bytes of "
            f"{self.layout.name(v)}, which {user} uses: neither before all its writers nor after "
            "all who use it"
        )
