"""What only a measurement can decide: algorithms, streams and tiles.

Each is measured in the network it is for, where caches are as they will be. What was found is
remembered on disk.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from nimble.clock import Clock
from nimble.devices.cpu import (
    WAIT_NS,
    Constants,
    Replay,
    key_of,
    recall,
    remember,
    supported,
    times_ns,
    with_measured_costs,
)
from nimble.graph import Graph, RecordedCosts
from nimble.graph.codec import encode
from nimble.lower import SIDES, candidates, split, use_winograd
from nimble.schedule import Schedule, schedule
from nimble.settings import Settings

LEAST_TO_SPLIT_NS = 600
"""Shorter tasks are not worth a wait."""
_CLEARLY = 0.95
"""Another algorithm has to take at most this much of the time: it is less exact."""
_SECOND_LOOKS = 2
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Found:
    """What measurements say of one network; this is what is remembered."""

    sides: dict[str, int]
    """Convolutions by Winograd's algorithm: task → side of a tile."""
    costs: list[int]
    """Nanoseconds of each task of the lowered graph."""
    variant: int = 0
    """Which of `_variants` was the fastest."""
    measured_ns: int = 0
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    graph: Graph
    """Lowered, with its algorithms and costs; not yet in tiles."""
    sides: dict[str, int]
    constants: dict[str, torch.Tensor]
    replay: Replay
    narrow: Schedule
    """On one stream."""
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
        known = found is not None
        found = found or _measure_tasks(graph, tensors, constants, example, settings.tune)
        graph = _with_costs(use_winograd(graph, found.sides), found.costs)
        held = constants.of(graph, tensors)
    with clock("schedule"):
        plans = _variants(graph, settings)
        narrow = plans[0]
        if known:
            plans = plans[found.variant : found.variant + 1] or plans
    with clock("bind"):
        replays = [Replay(plan, {**tensors, **held}) for plan in plans]
        if len(replays) > 1 or not known:
            found = _measure_replays(plans, replays, example, found)
            best = replays[found.variant]
        else:
            best = replays[0]
    if not known and settings.tune != "off":
        remember(key, asdict(found))
    return Chosen(graph, found.sides, held, best, narrow, found.measured_ns, found.choice)


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
            and found.variant in range(3)
            and type(found.measured_ns) is int
            and type(found.choice) is str
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


def _variants(graph: Graph, settings: Settings) -> list[Schedule]:
    """One stream; several; several with tasks in tiles. Those that have one stream only, once."""
    costs, workers = RecordedCosts(wait=WAIT_NS), settings.workers
    plans = [schedule(graph, streams=1, costs=costs, memory_limit=settings.memory_limit)]
    if workers > 1:
        tiled = split(graph, workers, LEAST_TO_SPLIT_NS, supported)
        graphs = [graph, tiled] if len(tiled.tasks) > len(graph.tasks) else [graph]
        plans += [
            schedule(g, streams=workers, costs=costs, memory_limit=settings.memory_limit)
            for g in graphs
        ]
    return [plans[0], *(plan for plan in plans[1:] if len(plan.streams) > 1)]


def _measure_replays(
    plans: list[Schedule], replays: list[Replay], example: list[torch.Tensor], found: Found
) -> Found:
    likely = min(range(len(plans)), key=lambda i: plans[i].decision.predicted_ns)
    times = times_ns(replays, example)
    # By the fastest run of each: another program may have slowed down any of the others.
    best = min(range(len(replays)), key=lambda i: min(times[i]))
    for _ in range(_SECOND_LOOKS if best != likely else 0):
        # Where the prediction is contradicted, the helpers' cores may just have been busy.
        for mine, more in zip(times, times_ns(replays, example), strict=True):
            mine += more
        best = min(range(len(replays)), key=lambda i: min(times[i]))
    choice = plans[-1].decision.reason
    if len(replays) > 1:
        choice = ", ".join(_tried(plan, min(ns)) for plan, ns in zip(plans, times, strict=True))
        choice += ": the fastest is kept"
    measured = int(statistics.median(times[best]))
    return replace(found, variant=best, measured_ns=measured, choice=choice)


def _tried(plan: Schedule, ns: int) -> str:
    tiles = sum("/" in task.name for task in plan.graph.tasks)
    streams = "1 stream" if len(plan.streams) == 1 else f"{len(plan.streams)} streams"
    return f"{streams}{f' with {tiles} tiles' if tiles else ''} measured {ns / 1e6:.3f} ms"
