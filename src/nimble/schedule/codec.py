"""A Schedule as JSON, and back. What is read is only believed once it is proven."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from nimble.errors import ScheduleError
from nimble.graph import Graph
from nimble.schedule.plan import Decision, Schedule, Wait


def encode(schedule: Schedule) -> dict[str, Any]:
    """Everything but the graph."""
    return {
        "streams": schedule.streams,
        "waits": [[wait.task, wait.on] for wait in schedule.waits],
        "offsets": schedule.offsets,
        "arena_bytes": schedule.arena_bytes,
        "decision": asdict(schedule.decision),
    }


def decode(graph: Graph, data: dict[str, Any]) -> Schedule:
    """The schedule as it was, not yet proven. Nonsense raises ScheduleError, KeyError, TypeError or
    ValueError."""
    return Schedule(
        graph=graph,
        streams=tuple(tuple(stream) for stream in data["streams"]),
        waits=tuple(Wait(task, on) for task, on in data["waits"]),
        offsets=tuple(data["offsets"]),
        arena_bytes=data["arena_bytes"],
        decision=_decision(data["decision"]),
    )


def _decision(data: dict[str, Any]) -> Decision:
    made = Decision(**data)
    for field in fields(Decision):
        held = getattr(made, field.name)
        if type(held).__name__ != field.type:
            raise ScheduleError(f"{field.name} is {held!r}, and has to be a {field.type}")
    return made
