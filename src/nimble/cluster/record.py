"""What happened, one row per event of a job: enough for every metric, picture and story."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.policy import Reason
from nimble.cluster.topology import Placement


class What(IntEnum):
    """What happened to the job (or machine) of a row."""

    SUBMIT = 0
    START = 1  # began on `placement`, for the policy's reason
    STOP = 2  # preempted, for the policy's reason
    MOVE = 3  # goes on on `placement`
    RESIZE = 4  # goes on on `placement`, with another number of GPUs
    FAIL = 5  # stopped because a machine failed; reason numbers: machine, iterations lost
    FINISH = 6
    DOWN = 7  # a machine, job = -1; reason numbers: machine
    UP = 8  # a machine, job = -1; reason numbers: machine


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float
    what: What
    job: int
    placement: Placement  # START, MOVE and RESIZE; else ()
    reason: Reason


@dataclass(frozen=True, slots=True)
class Segment:
    """A time during which a job held the same GPUs."""

    job: int
    start_s: float
    end_s: float  # of the run so far, if it had not ended
    placement: Placement
    started: Event
    ended: Event | None


class Columns(NamedTuple):
    """The rows of a record as arrays that share its memory: add nothing while they are in use."""

    at_s: NDArray[np.float64]
    what: NDArray[np.int8]
    job: NDArray[np.int64]
    reason: NDArray[np.int16]  # a place in Record.codes
    numbers: NDArray[np.float64]  # three a row; nan where there are fewer
    # The placement of row r: machines[ends[r - 1]:ends[r]], and as many GPUs.
    ends: NDArray[np.int64]
    machines: NDArray[np.int32]
    gpus: NDArray[np.int32]


class Record:
    """Rows in the order of time. `rates` only when asked for (Options.record_rates)."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.end_s = 0.0
        self._code: dict[str, int] = {}
        self._at = array("d")
        self._what = array("b")
        self._job = array("q")
        self._reason = array("h")
        self._numbers = array("d")  # three a row
        self._place = array("q")  # where its placement ends in _machines and _gpus
        self._machines = array("i")
        self._gpus = array("i")
        # A job's share of its speed alone, whenever contention changed it: time, job, share.
        self.rate_at = array("d")
        self.rate_job = array("q")
        self.rate_share = array("d")

    def __len__(self) -> int:
        return len(self._at)

    def add(
        self, at: float, what: What, job: int, placement: Placement, code: str,
        numbers: Sequence[float],
    ) -> None:  # fmt: skip
        known = self._code.get(code)
        if known is None:
            known = self._code[code] = len(self.codes)
            self.codes.append(code)
        try:
            self._numbers.extend((*numbers, _NAN, _NAN, _NAN)[:3] if numbers else _NONE)
        except TypeError:  # no numbers: the row is not there
            del self._numbers[3 * len(self._at) :]
            raise
        self._at.append(at)
        self._what.append(what)
        self._job.append(job)
        self._reason.append(known)
        for machine, gpus in placement:
            self._machines.append(machine)
            self._gpus.append(gpus)
        self._place.append(len(self._machines))

    def event(self, row: int) -> Event:
        begin = self._place[row - 1] if row else 0
        end = self._place[row]
        numbers = tuple(x for x in self._numbers[3 * row : 3 * row + 3] if x == x)
        return Event(
            self._at[row],
            What(self._what[row]),
            self._job[row],
            tuple(zip(self._machines[begin:end], self._gpus[begin:end], strict=True)),
            Reason(self.codes[self._reason[row]], numbers),
        )

    def events(self) -> Iterator[Event]:
        return map(self.event, range(len(self)))

    def columns(self) -> Columns:
        """All rows at once, without copying them."""
        return Columns(
            np.frombuffer(self._at, np.float64),
            np.frombuffer(self._what, np.int8),
            np.frombuffer(self._job, np.int64),
            np.frombuffer(self._reason, np.int16),
            np.frombuffer(self._numbers, np.float64).reshape(-1, 3),
            np.frombuffer(self._place, np.int64),
            np.frombuffer(self._machines, np.int32),
            np.frombuffer(self._gpus, np.int32),
        )

    def of_job(self, job: int) -> list[Event]:
        """One job's rows: its story. (For many jobs go through `events` once.)"""
        return [self.event(row) for row, j in enumerate(self._job) if j == job]

    def segments(self) -> Iterator[Segment]:
        """In the order in which they ended; those still open last."""
        opened: dict[int, Event] = {}
        for row, (what, job) in enumerate(zip(self._what, self._job, strict=True)):
            if what == What.SUBMIT or job < 0:
                continue
            event = self.event(row)
            before = opened.pop(job, None)
            if before is not None:
                yield Segment(job, before.at_s, event.at_s, before.placement, before, event)
            if event.placement:
                opened[job] = event
        for job, before in opened.items():
            yield Segment(job, before.at_s, self.end_s, before.placement, before, None)

    def rates(self) -> Iterator[tuple[float, int, float]]:
        """(time, job, share): from that time on the job runs at `share` of its speed alone.

        A job runs at 1 from each START, MOVE and RESIZE on until a row says otherwise.
        """
        return zip(self.rate_at, self.rate_job, self.rate_share, strict=True)


_NAN = float("nan")
_NONE = (_NAN, _NAN, _NAN)
