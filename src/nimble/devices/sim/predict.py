"""`predict`: what a schedule, or eager PyTorch, would take on a GPU that is not here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.devices.sim.constants import Constants, Host, default_constants, find_host
from nimble.devices.sim.gpus import Gpu, find_gpu
from nimble.devices.sim.phases import Phase, phases
from nimble.devices.sim.run import Sharing, run
from nimble.devices.sim.times import Times, times
from nimble.devices.sim.work import Work
from nimble.errors import InputError
from nimble.graph import DType, Graph, Role, Task, dependencies
from nimble.schedule import Schedule
from nimble.schedule.lifetimes import homes, peak

MODES = ("graph", "launch")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction, never a measurement. Times are in nanoseconds from the call on."""

    gpu: str
    mode: str
    """graph: one launch of a captured graph; launch: kernels launched by the host one by one;
    eager: called by PyTorch one by one."""
    ns: float
    """Until the last task has ended, and the host is done."""
    streams: tuple[tuple[int, ...], ...]
    launch: tuple[int, ...]
    """The order in which tasks are handed to the GPU: issue them so."""
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    """Of every task."""
    critical_path_ns: float
    """The longest chain of tasks that depend on one another: no number of streams beats it."""
    work_ns: float
    """What the GPU's multiprocessors or its bandwidth need at the least."""
    idle: float
    """The share of the time in which no kernel runs."""
    arena_bytes: int
    """Of intermediates, shared in time."""
    weights_bytes: int
    """Parameters, constants and states."""

    @property
    def ms(self) -> float:
        return self.ns / 1e6


class SimCosts:
    """A GPU's costs as the list scheduler asks for them (the Costs protocol)."""

    byte = 0.0

    def __init__(self, gpu: Gpu, constants: Constants) -> None:
        self._gpu, self._constants = gpu, constants
        self.wait = round(constants.wait_us * 1e3)
        self._known: tuple[Graph, dict[int, int]] | None = None

    def task(self, graph: Graph, task: Task) -> int:
        if self._known is None or self._known[0] is not graph:
            found = times(Work.of(graph), self._gpu, self._constants).alone
            by_task = {id(t): max(1, round(ns)) for t, ns in zip(graph.tasks, found, strict=True)}
            self._known = graph, by_task
        return self._known[1][id(task)]


def costs(gpu: Gpu | str, constants: Constants | None = None) -> SimCosts:
    """What tasks and waits cost on a GPU, for `nimble.schedule.schedule(costs=...)`."""
    return SimCosts(_gpu(gpu), constants or default_constants())


def predict(
    schedule: Schedule,
    gpu: Gpu | str,
    *,
    mode: str = "graph",
    launch: Sequence[int] | None = None,
    constants: Constants | None = None,
    host: Host | None = None,
) -> Prediction:
    """What a schedule would take on a GPU. `launch` is the order in which its tasks are handed
    over; by default their order in the graph.

    >>> from nimble.graph import Graph
    >>> from nimble.schedule import schedule
    >>> predict(schedule(Graph("nothing", (), (), (), ())), "v100").streams
    ()
    """
    if mode not in MODES:
        raise InputError(f"mode={mode!r}: expected one of {', '.join(MODES)}, or predict_eager()")
    found, constants = _gpu(gpu), constants or default_constants()
    graph = schedule.graph
    waits = [(wait.task, wait.on) for wait in schedule.waits]
    order = tuple(launch) if launch is not None else tuple(range(len(graph.tasks)))
    taken = times(Work.of(graph), found, constants)
    starts, ends = replay(
        taken, schedule.streams, waits, order, mode, constants, host or find_host("recent")
    )
    return Prediction(
        gpu=found.name,
        mode=mode,
        ns=max(ends, default=0.0),
        streams=schedule.streams,
        launch=order,
        starts=tuple(starts),
        ends=tuple(ends),
        critical_path_ns=critical_path(graph, taken.alone),
        work_ns=taken.work,
        idle=_idle(starts, ends),
        arena_bytes=schedule.arena_bytes,
        weights_bytes=_weights(graph),
    )


def replay(
    taken: Times,
    streams: Sequence[Sequence[int]],
    waits: Sequence[tuple[int, int]],
    launch: Sequence[int],
    mode: str,
    constants: Constants,
    host: Host,
) -> tuple[list[float], list[float]]:
    """When tasks start and end: after one launch of a graph, or each after a launch of its own."""
    sharing = Sharing(constants.wait_us * 1e3, constants.node_us * 1e3, constants.interference)
    issued = [constants.graph_us * 1e3] * len(launch)
    if mode == "launch":
        for place, task in enumerate(launch):
            issued[task] = (place + 1) * host.launch_us * 1e3
    return run(taken, streams, waits, launch, sharing, issued)


def predict_eager(
    graph: Graph,
    gpu: Gpu | str,
    *,
    numbers: int | None = None,
    constants: Constants | None = None,
    host: Host | None = None,
) -> Prediction:
    """What eager PyTorch would take: operators called one by one, on one stream.

    `graph` is what was captured, with nothing folded. `numbers` is the input of a training step
    that holds the optimizer's numbers.
    """
    found, constants = _gpu(gpu), constants or default_constants()
    work = Work.of(graph)
    called = phases(graph, numbers)
    taken = times(work, found, constants)
    there = np.array([phase is not Phase.ABSENT for phase in called])
    taken = Times(taken.alone * there, taken.processors * there, taken.bandwidth * there)
    issued = np.cumsum(host_ns(work, called, host or find_host("recent")))
    order = tuple(range(work.tasks))
    starts, ends = run(taken, [order], [], order, Sharing(), issued.tolist())
    return Prediction(
        gpu=found.name,
        mode="eager",
        ns=max(ends, default=0.0),
        streams=(order,),
        launch=order,
        starts=tuple(starts),
        ends=tuple(ends),
        critical_path_ns=critical_path(graph, taken.alone),
        work_ns=taken.work,
        idle=_idle(starts, ends),
        arena_bytes=peak(homes(graph), order),
        weights_bytes=_weights(graph),
    )


def host_ns(work: Work, called: Sequence[Phase], host: Host) -> NDArray[np.float64]:
    """What the host needs for each call."""
    forward = host.op_us + host.operand_us * work.operands
    phase = np.array(called, np.int64)
    each = np.choose(phase, [forward, host.backward_us, host.update_us, 0.0])
    return np.asarray(each * 1e3, np.float64)


def critical_path(graph: Graph, alone: NDArray[np.float64]) -> float:
    ends = alone.tolist()
    for task, before in enumerate(dependencies(graph)):
        ends[task] += max((ends[parent] for parent in before), default=0.0)
    return max(ends, default=0.0)


def _idle(starts: Iterable[float], ends: Sequence[float]) -> float:
    """The share of the time up to the last end in which none of these spans lies."""
    busy = reached = 0.0
    for start, end in sorted(zip(starts, ends, strict=True)):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return 1.0 - busy / reached if reached else 0.0


def _weights(graph: Graph) -> int:
    kept = (Role.PARAMETER, Role.CONSTANT, Role.STATE)
    return sum(root.span for root in graph.roots(*kept) if root.dtype is not DType.TOKEN)


def _gpu(gpu: Gpu | str) -> Gpu:
    return find_gpu(gpu) if isinstance(gpu, str) else gpu
