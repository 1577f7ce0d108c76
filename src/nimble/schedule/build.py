"""`schedule`: decide streams, waits and memory for a graph, and prove the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from nimble.errors import MemoryLimitError, ScheduleError
from nimble.graph import Costs, DType, Graph, RecordedCosts, Role, dependencies
from nimble.graph.dependencies import writers_of
from nimble.graph.regions import common
from nimble.schedule.arena import Arena, arrange
from nimble.schedule.assignment import Assignment, Moves, Timing, assign, concurrent
from nimble.schedule.bounds import every_order
from nimble.schedule.fitting import fit
from nimble.schedule.lifetimes import Home, homes
from nimble.schedule.listing import spread
from nimble.schedule.matching import fewest_waits_then_streams, width
from nimble.schedule.order import Order
from nimble.schedule.plan import Decision, Schedule, Wait
from nimble.schedule.proof import prove


def schedule(
    graph: Graph,
    *,
    streams: int | None = None,
    costs: Costs | None = None,
    memory_limit: int | None = None,
    in_order: bool = False,
) -> Schedule:
    """Decide everything that will happen when the graph is replayed, and prove it free of races.

    Without `streams`, every two independent tasks get different streams. With it, tasks are spread
    over at most that many, and only where `costs` predict an earlier finish. `memory_limit` caps
    the bytes of the arena; MemoryLimitError says what is possible if that is not. Of tasks that are
    ready the one with most to do after it goes first; `in_order`, the first of the graph.
    """
    if streams is not None and streams < 1:
        raise ScheduleError(f"streams={streams}: give at least 1, or None for as many as help")
    order = order_of(graph)
    costs = costs or RecordedCosts()
    timing = Timing(
        tuple(costs.task(graph, task) for task in graph.tasks),
        costs.wait,
        _moves(graph, costs.byte) if costs.byte and streams != 1 else (),
    )
    needed = homes(graph)
    priority = range(len(graph.tasks), 0, -1) if in_order else None
    fastest = concurrent(order) if streams is None else spread(order, timing, streams, priority)
    if memory_limit is None:
        assignment, arena = fastest, arrange(needed, fastest.order)
    else:
        assignment, arena = fit(order, timing, needed, fastest, memory_limit)
    decision = _decision(order, timing, assignment, streams, assignment is not fastest)
    return _built(graph, assignment, needed, arena, decision)


def schedule_on(
    graph: Graph,
    streams: Sequence[Sequence[int]],
    *,
    reason: str,
    costs: Costs | None = None,
    memory_limit: int | None = None,
) -> Schedule:
    """The same for streams that were decided elsewhere: their waits, memory and proof.

    `reason` says why it is these. MemoryLimitError if no arena within the limit was found.
    """
    order = order_of(graph)
    costs = costs or RecordedCosts()
    timing = Timing(tuple(costs.task(graph, task) for task in graph.tasks), costs.wait)
    needed = homes(graph)
    assignment = assign(order, streams)
    arena = arrange(needed, assignment.order, memory_limit)
    if memory_limit is not None and arena.bytes > memory_limit:
        bound = every_order(needed, order)
        raise MemoryLimitError(
            f"no arena within memory_limit={memory_limit} bytes was found for these "
            f"{len(streams)} streams; the smallest takes {arena.bytes}. Raise the limit, or let "
            "tasks run one after another",
            arena.bytes,
            bound,
        )
    decision = _decision(order, timing, assignment, len(assignment.streams), False)
    return _built(graph, assignment, needed, arena, replace(decision, reason=reason))


def _built(
    graph: Graph, assignment: Assignment, needed: list[Home], arena: Arena, decision: Decision
) -> Schedule:
    built = Schedule(
        graph=graph,
        streams=assignment.streams,
        waits=tuple(Wait(task, on) for task, on in assignment.waits),
        offsets=_offsets(graph, needed, arena),
        arena_bytes=arena.bytes,
        decision=decision,
    )
    prove(built)
    return built


def order_of(graph: Graph) -> Order:
    """What must happen before what; ScheduleError if the tasks are not in such an order."""
    before = dependencies(graph)
    for task, earlier in enumerate(before):
        late = max(earlier, default=-1)
        if late >= task:
            raise ScheduleError(
                f"task {task} {graph.tasks[task].name!r} needs what task {late} "
                f"{graph.tasks[late].name!r} does, which comes after it in graph {graph.name!r}; "
                "sort the tasks, and give what is written over older contents a version of its own"
            )
    return Order.of(before, range(len(before)))


def _moves(graph: Graph, byte: float) -> tuple[Moves, ...]:
    """For every task, the tasks that write what it reads, and what that costs on another stream."""
    writers = writers_of(graph)
    found: list[Moves] = []
    for t, task in enumerate(graph.tasks):
        moved: dict[int, int] = {}
        for v in task.reads:
            for writer in writers[v]:
                # A task may write several parts of what is read.
                parts = graph.tasks[writer].writes if writer != t else ()
                for part in parts:
                    if graph.content(part) is graph.content(v):
                        moved[writer] = moved.get(writer, 0) + common(graph[v], graph[part])
        found.append(tuple((w, int(n * byte)) for w, n in moved.items() if n * byte >= 1))
    return tuple(found)


def _offsets(graph: Graph, needed: list[Home], arena: Arena) -> tuple[int | None, ...]:
    starts = {home.id: offset for home, offset in zip(needed, arena.offsets, strict=True)}
    offsets: list[int | None] = []
    for value in graph.values:
        home = graph[graph.homes[value.id]]
        start = starts.get(home.id)
        if home.role is not Role.INTERMEDIATE or value.dtype is DType.TOKEN:
            start = None
        elif home.span == 0:
            start = 0
        offsets.append(None if start is None else start + value.offset)
    return tuple(offsets)


def _decision(
    order: Order, timing: Timing, assignment: Assignment, streams: int | None, squeezed: bool
) -> Decision:
    chains, matching = fewest_waits_then_streams(order)
    widest = width(order, matching.after)
    after = [-1] * len(order)
    for stream in assignment.streams:
        for earlier, later in pairwise(stream):
            after[earlier] = later
    used = len(assignment.streams)
    predicted = timing.finish(assignment)
    if squeezed:
        reason = "the fastest found whose arena fits in the memory limit"
    elif widest <= 1:
        reason = "every task depends on the one before it"
    elif streams is None and used > widest:
        reason = f"{widest} would do for the independent tasks, but not with so few waits"
    elif streams is None:
        reason = f"{used} tasks are independent of one another, and no more"
    elif streams == 1:
        reason = "no more were allowed"
    elif used > 1:
        reason = f"predicted {predicted:,} ns instead of {timing.total:,} ns on one"
    else:
        reason = f"no use of up to {streams} is predicted to finish sooner"
    return Decision(
        tasks=len(order),
        meg_edges=order.edges,
        chains=len(order) - chains.size,
        width=widest,
        concurrency=width(assignment.order, after),
        predicted_ns=predicted,
        sequential_ns=timing.total,
        critical_path_ns=max(timing.critical_paths(order), default=0),
        reason=f"{used} stream{'' if used == 1 else 's'}: {reason}",
    )
