"""A measured replay: tasks on lanes. Opens in Perfetto or chrome://tracing, or as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nimble.devices import Span
from nimble.errors import InputError
from nimble.schedule import Schedule


def check_path(path: str | Path) -> Path:
    """The path, if a timeline can be saved there."""
    path = Path(path)
    if path.suffix not in (".json", ".svg"):
        raise InputError(f"{path}: a timeline is saved as .json (Perfetto) or .svg (picture)")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    return path


@dataclass(frozen=True, slots=True)
class Bar:
    """One task on the timeline; times in nanoseconds from the start of the replay."""

    name: str
    op: str
    origin: str
    stream: int
    thread: int
    start: int
    stop: int


@dataclass(frozen=True)
class Timeline:
    """What ran when. `bars` are in order of their start."""

    name: str
    streams: int
    bars: tuple[Bar, ...]
    waits: tuple[tuple[int, int], ...]
    """Pairs of bars: the second waited for the first."""

    @staticmethod
    def of(schedule: Schedule, spans: Sequence[Span]) -> Timeline:
        lane = {task: lane for lane, stream in enumerate(schedule.streams) for task in stream}
        zero = min((span.start for span in spans), default=0)
        ordered = sorted(spans, key=lambda span: span.start)
        place = {span.task: i for i, span in enumerate(ordered)}
        tasks = schedule.graph.tasks
        bars = tuple(
            Bar(
                tasks[s.task].name,
                tasks[s.task].op,
                tasks[s.task].origin,
                lane[s.task],
                s.thread,
                s.start - zero,
                s.stop - zero,
            )
            for s in ordered
        )
        waits = tuple((place[w.on], place[w.task]) for w in schedule.waits)
        return Timeline(schedule.graph.name, len(schedule.streams), bars, waits)

    @property
    def duration(self) -> int:
        return max((bar.stop for bar in self.bars), default=0)

    def save(self, path: str | Path) -> Path:
        """Write the timeline: `.json` for Perfetto, `.svg` for a picture."""
        path = check_path(path)
        if path.suffix == ".svg":
            from nimble.observe.picture import picture

            path.write_text(picture(self))
        else:
            path.write_text(json.dumps(self.to_trace()))
        return path

    def to_trace(self) -> dict[str, object]:
        """The Chrome trace format: one track a stream, an arrow a wait."""
        events: list[dict[str, object]] = [
            {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"nimble {self.name}"}}
        ]
        for stream in range(self.streams):
            events.append(
                {"ph": "M", "pid": 0, "tid": stream, "name": "thread_name",
                 "args": {"name": f"stream {stream}"}}
            )  # fmt: skip
        for bar in self.bars:
            events.append(
                {"ph": "X", "pid": 0, "tid": bar.stream, "name": bar.name, "cat": bar.op,
                 "ts": bar.start / 1000, "dur": (bar.stop - bar.start) / 1000,
                 "args": {"op": bar.op, "from": bar.origin, "thread": bar.thread}}
            )  # fmt: skip
        for number, (first, second) in enumerate(self.waits):
            a, b = self.bars[first], self.bars[second]
            arrow = {"cat": "wait", "name": "wait", "pid": 0, "id": number}
            events.append({**arrow, "ph": "s", "tid": a.stream, "ts": (a.stop - 1) / 1000})
            events.append({**arrow, "ph": "f", "bp": "e", "tid": b.stream, "ts": b.start / 1000})
        return {"traceEvents": events, "displayTimeUnit": "ns"}
