"""One signature's way through the pipeline: capture, rewrite, lower, schedule, prove, bind."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nimble.capture import Captured, Target, capture
from nimble.capture.structure import Structure
from nimble.capture.tensors import copy_exactly
from nimble.devices.cpu import (
    WAIT_NS,
    Constants,
    Replay,
    ReplayPool,
    supported,
    times_ns,
    with_measured_costs,
)
from nimble.graph import Graph, RecordedCosts, verify
from nimble.lower import lower, split
from nimble.rewrite import Step, rewrite
from nimble.schedule import Schedule, schedule
from nimble.signature import Signature

STAGES = ("capture", "rewrite", "lower", "measure", "schedule", "bind")
Report = Callable[[str], None]
LEAST_TO_SPLIT_NS = 600
"""Shorter tasks are not worth a wait."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user decides; the same for all plans of an engine."""

    workers: int
    memory_limit: int | None = None
    native_kernels: bool = True


@dataclass
class Plan:
    """Everything decided for one signature, bound and ready to replay."""

    signature: Signature
    names: list[str]
    """What the input tensors are called."""
    output: Structure
    tensors: Mapping[str, torch.Tensor]
    """The memory of parameters and state, by name."""
    captured_tasks: int
    source: Graph
    """Rewritten, not yet lowered: the same on any machine."""
    lowered: Graph
    """For this device, not yet in tiles."""
    graph: Graph
    steps: tuple[Step, ...]
    replay: ReplayPool
    constants: dict[str, torch.Tensor]
    example: list[torch.Tensor]
    reason: str
    """Why this plan was needed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each stage took."""
    measured_ns: int | None = None
    choice: str = ""
    """Why this many streams are used."""
    fingerprint: tuple[Any, ...] = ()
    """What else the capture depended on: modules, their names for tensors, attributes, hooks."""
    paddable: bool = False
    """Whether its rows are proven independent, so that a smaller batch might be padded to it."""
    padded: dict[int, str | None] = field(default_factory=dict)
    """Smaller numbers of rows → why they must not be padded to it; None: proven that they may."""

    def __post_init__(self) -> None:
        self.gate = self.signature.gate()

    @property
    def schedule(self) -> Schedule:
        return self.replay.schedule


def make_plan(
    target: Target,
    signature: Signature,
    tensors: list[torch.Tensor],
    settings: Settings,
    constants: Constants,
    *,
    name: str,
    reason: str,
    report: Report = lambda stage: None,
) -> Plan:
    """Take the model, called on `tensors`, all the way to a plan."""
    clock = _Clock(report)
    with clock("capture"):
        captured = capture(target, tensors, signature.structure, name)
    with clock("rewrite"):
        source, steps = rewrite(captured.graph)
        graph = _checked(source)
    with clock("lower"):
        if settings.native_kernels:
            graph, lowered = lower(graph, supported)
            steps = (*steps, *lowered)
            _checked(graph)
    with clock("measure"):
        held = constants.of(graph, captured.tensors)
        everything = {**captured.tensors, **held}
        example = [copy_exactly(tensor) for tensor in tensors]
        alone = Replay(schedule(graph, streams=1), everything)
        graph = with_measured_costs(graph, alone, example)
    replay, narrow, measured, choice = _bind(graph, everything, settings, example, clock)
    return Plan(
        signature=signature,
        names=[graph[v].name for v in graph.inputs],
        output=captured.output,
        tensors=_used(captured, graph),
        captured_tasks=len(captured.graph.tasks),
        source=source,
        lowered=graph,
        graph=replay.graph,
        steps=steps,
        replay=ReplayPool(replay, settings.workers, narrow),
        constants=held,
        example=example,
        reason=reason,
        seconds=clock.seconds,
        measured_ns=measured,
        choice=choice,
        fingerprint=target.fingerprint(),
    )


def _bind(
    graph: Graph,
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    example: list[torch.Tensor],
    clock: _Clock,
) -> tuple[Replay, Schedule, int, str]:
    """The fastest proven schedule of a graph with costs, bound: sequential or parallel, whichever
    really is faster here."""
    costs = RecordedCosts(wait=WAIT_NS)
    workers, limit = settings.workers, settings.memory_limit
    with clock("schedule"):
        plans = [schedule(graph, streams=1, costs=costs, memory_limit=limit)]
        if workers > 1:
            plans.append(schedule(graph, streams=workers, costs=costs, memory_limit=limit))
            tiled = split(graph, workers, LEAST_TO_SPLIT_NS, supported)
            if len(tiled.tasks) > len(graph.tasks):
                plans.append(schedule(tiled, streams=workers, costs=costs, memory_limit=limit))
    with clock("bind"):
        plans = [plans[0], *(plan for plan in plans[1:] if len(plan.streams) > 1)]
        replays = [Replay(plan, tensors) for plan in plans]
        times = times_ns(replays, example)
    # By the fastest run of each: another program may have slowed down any of the others.
    best = min(range(len(replays)), key=lambda i: min(times[i]))
    choice = plans[-1].decision.reason
    if len(replays) > 1:
        choice = ", ".join(_tried(plan, min(ns)) for plan, ns in zip(plans, times, strict=True))
        choice += ": the fastest is kept"
    return replays[best], plans[0], int(statistics.median(times[best])), choice


def _tried(plan: Schedule, ns: int) -> str:
    tiles = sum("/" in task.name for task in plan.graph.tasks)
    streams = "1 stream" if len(plan.streams) == 1 else f"{len(plan.streams)} streams"
    return f"{streams}{f' with {tiles} tiles' if tiles else ''} measured {ns / 1e6:.3f} ms"


def _checked(graph: Graph) -> Graph:
    """The graph, verified if NIMBLE_VERIFY=1 asks for it between stages."""
    return verify(graph) if os.environ.get("NIMBLE_VERIFY") == "1" else graph


def _used(captured: Captured, graph: Graph) -> dict[str, torch.Tensor]:
    graphs = [graph] if graph.prologue is None else [graph, graph.prologue]
    names = {root.name for g in graphs for root in g.roots()}
    return {name: tensor for name, tensor in captured.tensors.items() if name in names}


class _Clock:
    """Times the stages, and tells whoever shows progress."""

    def __init__(self, report: Report) -> None:
        self.seconds: dict[str, float] = {}
        self._report = report
        self._stage = ""
        self._since = 0.0

    def __call__(self, stage: str) -> _Clock:
        self._stage = stage
        return self

    def __enter__(self) -> None:
        self._report(self._stage)
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took = time.perf_counter() - self._since
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + took
