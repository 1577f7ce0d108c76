"""What only a measurement can decide: algorithms, streams and tiles.

Each is measured in the network it is for, where caches are as they will be. What was found is
remembered on disk. What was found beside other processes holds until the network is compiled in a
quieter moment.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from nimble.clock import Clock
from nimble.company import Company
from nimble.devices import Constants
from nimble.devices.cpu import (
    BYTE_NS,
    WAIT_NS,
    Replay,
    allocate,
    key_of,
    recall,
    remember,
    supported,
    times_ns,
    with_measured_costs,
)
from nimble.errors import MemoryLimitError, NimbleError
from nimble.graph import Graph, RecordedCosts
from nimble.graph.codec import encode
from nimble.lower import (
    CUTS,
    IN_ORDER,
    SIDES,
    candidates,
    cut,
    is_again,
    use_winograd,
    within,
)
from nimble.schedule import Schedule, prove, schedule
from nimble.schedule.codec import decode
from nimble.schedule.codec import encode as encode_schedule
from nimble.settings import Settings

_CLEARLY = 0.95
"""Another algorithm has to take at most this much of the time: it is less exact."""
_AS_FAST, _LEANER = 1.015, 0.9
"""What takes at most so much of the fastest one's time, and so much of its memory, is preferred."""
_SECOND_LOOKS = 2
_LOUD = 0.25
"""Cores that others keep busy, from which on a measurement is not to be trusted."""
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Found:
    """What measurements say of one network; this is what is remembered."""

    sides: dict[str, int]
    """Convolutions by Winograd's algorithm: task → side of a tile."""
    costs: list[int]
    """Nanoseconds of each task of the lowered graph."""
    cut: str = "whole"
    """The way of cutting it that was fastest: one of CUTS."""
    lean: int = 0
    """Bytes that may be alive at once, where tasks had to run twice for that."""
    schedule: dict[str, Any] = field(default_factory=dict)
    """That it was fastest with; encoded."""
    measured_ns: int = 0
    choice: str = ""
    company: float = 0.0
    """Cores that other processes kept busy meanwhile."""


@dataclass(frozen=True, slots=True)
class Chosen:
    graph: Graph
    """Lowered, with its algorithms and costs; not yet cut."""
    sides: dict[str, int]
    cut: str
    """How it is cut for the workers: one of CUTS."""
    lean: int
    constants: dict[str, torch.Tensor]
    replay: Replay
    narrow: Callable[[], Schedule]
    """Makes the schedule on one stream."""
    measured_ns: int
    choice: str
    """Why this many streams are used."""


def choose(
    graph: Graph,
    tensors: Tensors,
    constants: Constants,
    example: list[torch.Tensor],
    settings: Settings,
    clock: Clock,
) -> Chosen:
    """The fastest proven schedule of a lowered graph, bound."""
    key = key_of([_description(graph), asdict(settings)])
    with clock("measure"):
        found = _recalled(key, graph) if settings.tune != "off" else None
        if found is not None and found.company > _LOUD >= clock.company.cores():
            found = None  # It was measured beside others, and now they are gone.
        company = Company()
        found = found or _measure_tasks(graph, tensors, constants, example, settings.tune)
        graph = _with_costs(use_winograd(graph, found.sides), found.costs)
        held = constants.of(graph, tensors)
    with clock("schedule"):
        variants = _remembered(graph, found, settings.workers)
        known = bool(variants)
        variants = variants or _variants(graph, settings)
    with clock("bind"):
        memory = {**tensors, **held}
        kept = variants[0]
        if not known:
            # One arena for all of them, which run one after the other.
            arena = allocate(max(variant.plan.arena_bytes for variant in variants))
            replays = [Replay(variant.plan, memory, arena) for variant in variants]
            best, found = _measure_replays(variants, replays, example, found)
            found = replace(found, company=round(company.cores(), 2))
            kept = variants[best]
            del replays, arena
        replay = Replay(kept.plan, memory)
    if not known and settings.tune != "off":
        remember(key, asdict(found))
    return Chosen(
        graph=graph,
        sides=found.sides,
        cut=found.cut,
        lean=found.lean,
        constants=held,
        replay=replay,
        narrow=lambda: planned(
            cut(graph, "whole", 1, supported, found.lean), "whole", 1, settings.memory_limit
        ),
        measured_ns=found.measured_ns,
        choice=found.choice + _caveat(found),
    )


def _caveat(found: Found) -> str:
    if found.company <= _LOUD:
        return ""
    return (
        f"; other processes kept {found.company:.1f} cores busy meanwhile: compiled in a quieter "
        "moment, it is measured again"
    )


def _description(graph: Graph) -> dict[str, Any]:
    """All that times depend on. Not the lines of the model's source, which move."""
    data = encode(graph)
    for part in (data, data["prologue"]):
        if part is not None:
            part["tasks"] = [task[:-1] for task in part["tasks"]]
    return data


def _recalled(key: str, graph: Graph) -> Found | None:
    data: Any = recall(key)
    try:
        found = Found(**data)
        costs, sides = found.costs, found.sides
        right = (
            len(costs) == len(graph.tasks)
            and all(type(cost) is int and cost > 0 for cost in costs)
            and all(side in SIDES for side in sides.values())
            and found.cut in CUTS
            and type(found.lean) is int
            and isinstance(found.schedule, dict)
            and type(found.measured_ns) is int
            and type(found.choice) is str
            and type(found.company) in (int, float)
        )
    except (TypeError, AttributeError):
        return None  # Nothing, or something else.
    return found if right else None


def _measure_tasks(
    graph: Graph, tensors: Tensors, constants: Constants, example: list[torch.Tensor], tune: str
) -> Found:
    def measured(variant: Graph) -> dict[str, int]:
        held = constants.of(variant, tensors)
        alone = Replay(schedule(variant, streams=1), {**tensors, **held})
        timed = with_measured_costs(variant, alone, example)
        return {task.name: task.cost for task in timed.tasks}

    costs = measured(graph)
    sides: dict[str, int] = {}
    trials = candidates(graph, all_sides=tune == "full") if tune != "off" else []
    for trial in trials:
        other = measured(use_winograd(graph, trial))
        for name, side in trial.items():
            if other[name] < _CLEARLY * costs[name]:
                sides[name], costs[name] = side, other[name]
    return Found(sides, [costs[task.name] for task in graph.tasks])


def _with_costs(graph: Graph, costs: list[int]) -> Graph:
    return graph.with_tasks(
        replace(task, cost=cost) for task, cost in zip(graph.tasks, costs, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Variant:
    cut: str
    lean: int
    plan: Schedule


def _remembered(graph: Graph, found: Found, workers: int) -> list[_Variant]:
    """The schedule that was the fastest when it was measured, if it was and can be proven."""
    try:
        known = cut(graph, found.cut, workers, supported, found.lean)
        plan = decode(known, found.schedule)
        prove(plan)
    except (NimbleError, KeyError, TypeError, ValueError):
        return []  # Nothing was, or it is damaged: it is planned and measured again.
    return [_Variant(found.cut, found.lean, plan)]


def _variants(graph: Graph, settings: Settings) -> list[_Variant]:
    """Those that fit in the memory limit; with tasks run twice if no other does."""

    def attempt(graph: Graph, limit: int | None, lean: int) -> list[_Variant]:
        return _fitting(graph, replace(settings, memory_limit=limit), lean)

    return within(settings.memory_limit, graph, attempt)


def _fitting(graph: Graph, settings: Settings, lean: int = 0) -> list[_Variant]:
    """On one stream, and on several the graph cut in every way. Ways that change nothing, or turn
    out to use one stream only, are left out, and so are those that take too much memory."""
    workers, limit = settings.workers, settings.memory_limit
    ways = [("whole", 1, graph)]
    for how in CUTS:
        variant = cut(graph, how, workers, supported)
        if (variant is graph) == (how == "whole") and (workers > 1 or how == "strips"):
            ways.append((how, workers, variant))
    found: list[_Variant] = []
    refused: MemoryLimitError | None = None
    for how, streams, variant in ways:
        try:
            plan = planned(variant, how, streams, limit)
        except MemoryLimitError as error:
            refused = refused or error
            continue
        if not found or len(plan.streams) > 1 or workers == 1:
            found.append(_Variant(how, lean, plan))
    if not found and refused is not None:
        raise refused
    return found


def planned(graph: Graph, how: str, streams: int, memory_limit: int | None) -> Schedule:
    """The schedule of a graph that was cut this way, from its measured costs."""
    return schedule(
        graph,
        streams=streams,
        costs=RecordedCosts(wait=WAIT_NS, byte=BYTE_NS),
        memory_limit=memory_limit,
        in_order=how in IN_ORDER,
    )


def _measure_replays(
    variants: list[_Variant], replays: list[Replay], example: list[torch.Tensor], found: Found
) -> tuple[int, Found]:
    """Which is the fastest, and what is to be remembered of it."""
    plans = [variant.plan for variant in variants]
    likely = min(range(len(plans)), key=lambda i: plans[i].decision.predicted_ns)
    times = times_ns(replays, example)
    best = _preferred(plans, times)
    for _ in range(_SECOND_LOOKS if best != likely else 0):
        # Where the prediction is contradicted, the helpers' cores may just have been busy.
        for mine, more in zip(times, times_ns(replays, example), strict=True):
            mine += more
        best = _preferred(plans, times)
    choice = plans[-1].decision.reason
    if len(replays) > 1:
        choice = ", ".join(_tried(one, min(ns)) for one, ns in zip(variants, times, strict=True))
        choice += _why(plans, times, best)
    measured = int(statistics.median(times[best]))
    kept = variants[best]
    if kept.lean:
        twice = {task.name.partition("/")[0] for task in kept.plan.graph.tasks if is_again(task)}
        choice += f"; {len(twice)} tasks run twice to keep the memory limit"
    return best, replace(
        found,
        cut=kept.cut,
        lean=kept.lean,
        schedule=encode_schedule(kept.plan),
        measured_ns=measured,
        choice=choice,
    )


def _preferred(plans: list[Schedule], times: list[list[int]]) -> int:
    """The fastest, or one that is about as fast and takes clearly less memory. By the fastest run
    of each: another program may have slowed down any of the others."""
    best = min(range(len(plans)), key=lambda i: min(times[i]))
    return min(
        (
            i
            for i, plan in enumerate(plans)
            if min(times[i]) <= _AS_FAST * min(times[best])
            and plan.arena_bytes < _LEANER * plans[best].arena_bytes
        ),
        key=lambda i: plans[i].arena_bytes,
        default=best,
    )


def _why(plans: list[Schedule], times: list[list[int]], kept: int) -> str:
    best = min(range(len(plans)), key=lambda i: min(times[i]))
    if kept == best:
        return ": the fastest is kept"
    less = 1 - plans[kept].arena_bytes / plans[best].arena_bytes
    return f": that of {min(times[kept]) / 1e6:.3f} ms is kept, for {less:.0%} less memory"


def _tried(variant: _Variant, ns: int) -> str:
    count = len(variant.plan.streams)
    streams = "1 stream" if count == 1 else f"{count} streams"
    parts = sum("/" in task.name for task in variant.plan.graph.tasks)
    called = _PARTS.get(variant.cut)
    return f"{streams}{f' with {parts} {called}' if called else ''} measured {ns / 1e6:.3f} ms"


_PARTS = {
    "tiles": "tiles",
    "some": "tiles where nothing else could run",
    "strips": "strips and tiles",
    "in order": "tiles in the order of the network",
}
