"""Streams and waits: optimal at maximum concurrency, never slower than one stream when bounded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_graphs import (
    Builder,
    Pairs,
    closure,
    dags,
    dependency_edges,
    from_edges,
    happens_before,
    nasnet_like,
    schedule_edges,
    sized_dags,
)
from scipy.optimize import linear_sum_assignment

from nimble.errors import ScheduleError
from nimble.graph import Graph, RecordedCosts, Role
from nimble.schedule import Schedule, schedule


def chain_covers(count: int, ordered: Pairs) -> Iterator[list[list[int]]]:
    """Every way to put tasks 0, 1, ... on streams so that no two independent ones share one."""
    if count == 0:
        yield []
        return
    last = count - 1
    for streams in chain_covers(last, ordered):
        yield [*streams, [last]]
        for i, stream in enumerate(streams):
            if (stream[-1], last) in ordered:
                yield [*streams[:i], [*stream, last], *streams[i + 1 :]]


def waits_and_streams_of_all(before: list[set[int]]) -> Iterator[tuple[int, int]]:
    """(waits, streams) of every assignment in which no two independent tasks share a stream."""
    ordered = closure(len(before), dependency_edges(before))
    nearest = ordered - {(a, b) for a, c in ordered for d, b in ordered if c == d}
    for streams in chain_covers(len(before), ordered):
        joined = {pair for stream in streams for pair in pairwise(stream)}
        yield len(nearest - joined), len(streams)


def test_fewest_waits_and_then_fewest_streams_for_every_graph_of_five_tasks() -> None:
    edges = list(combinations(range(5), 2))
    for chosen in product((False, True), repeat=len(edges)):
        before: list[set[int]] = [set() for _ in range(5)]
        for (parent, task), there in zip(edges, chosen, strict=True):
            if there:
                before[task].add(parent)
        built = schedule(from_edges(before))
        assert (len(built.waits), len(built.streams)) == min(waits_and_streams_of_all(before))


@settings(max_examples=600, deadline=None)
@given(dags(7))
def test_fewest_waits_and_then_fewest_streams(before: list[set[int]]) -> None:
    built = schedule(from_edges(before))
    assert (len(built.waits), len(built.streams)) == min(waits_and_streams_of_all(before))


@settings(max_examples=250, deadline=None)
@given(dags(8))
def test_independent_tasks_are_on_different_streams_and_stay_independent(
    before: list[set[int]],
) -> None:
    built = schedule(from_edges(before))
    ordered = closure(len(before), dependency_edges(before))
    assert happens_before(built) == ordered
    for stream in built.streams:
        assert set(combinations(stream, 2)) <= ordered


@settings(max_examples=150, deadline=None)
@given(dags(4))
def test_no_smaller_set_of_waits_keeps_the_order(before: list[set[int]]) -> None:
    """Not even one that may wait on any task, as long as it adds no order of its own."""
    built = schedule(from_edges(before))
    ordered = closure(len(before), dependency_edges(before))
    in_streams = {pair for stream in built.streams for pair in pairwise(stream)}
    others = sorted(ordered - in_streams)
    for count in range(len(built.waits)):
        for waits in combinations(others, count):
            assert closure(len(before), in_streams | set(waits)) != ordered


TWO = {0, 1}
HARD = [
    [set(), set(), set(), TWO, {3}, {3}, set(), {2, 5}, {6, 7}, {0, 1, 6}, {6, 7}],
    [set(), set(), set(), set(), TWO, set(), {4, 5}, {3, 4}, {2, 3, 5}, {8}, {8}],
    [set(), set(), TWO, set(), set(), {2, 3}, {4, 5}, {4, 5}, {6}, {6, 7}, {4}, {9}],
]


@pytest.mark.parametrize("before", HARD)
def test_a_matching_of_the_closure_alone_would_need_more_waits(before: list[set[int]]) -> None:
    built = schedule(from_edges(before))
    assert (len(built.waits), len(built.streams)) == by_assignment(before)


def test_fewest_waits_come_before_fewest_streams() -> None:
    """Four streams would do for the independent tasks of this graph, with a wait more."""
    built = schedule(from_edges(HARD[0]))
    assert (built.decision.width, len(built.streams)) == (4, 5)
    assert "4 would do" in built.decision.reason


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 10**9))
def test_larger_graphs_agree_with_a_weighted_assignment(seed: int) -> None:
    random = Random(seed)
    count, likely = random.randint(8, 24), random.choice([0.05, 0.1, 0.2, 0.3])
    before = [{p for p in range(t) if random.random() < likely} for t in range(count)]
    built = schedule(from_edges(before))
    assert (len(built.waits), len(built.streams)) == by_assignment(before)


def by_assignment(before: list[set[int]]) -> tuple[int, int]:
    """Waits and streams by another algorithm: an edge of the minimum equivalent graph is worth more
    than all other edges of the closure together."""
    count = len(before)
    ordered = closure(count, dependency_edges(before))
    nearest = ordered - {(a, b) for a, c in ordered for d, b in ordered if c == d}
    worth = np.zeros((count, count))
    for a, b in ordered:
        worth[a, b] = count + 1 if (a, b) in nearest else 1
    matched = set(zip(*map(np.ndarray.tolist, linear_sum_assignment(-worth)), strict=True))
    return len(nearest - matched), count - len(ordered & matched)


@settings(max_examples=150, deadline=None)
@given(dags(7))
def test_decision_counts_what_the_graph_has(before: list[set[int]]) -> None:
    built = schedule(from_edges(before))
    graph = nx.DiGraph(dependency_edges(before))
    graph.add_nodes_from(range(len(before)))
    reduced = nx.transitive_reduction(graph)
    decision = built.decision
    assert decision.tasks == len(before)
    assert decision.meg_edges == reduced.number_of_edges()
    assert decision.width == max(map(len, nx.antichains(graph)))
    assert decision.concurrency == decision.width
    assert len(built.waits) == decision.meg_edges - (decision.tasks - decision.chains)


@settings(max_examples=250, deadline=None)
@given(sized_dags(9), st.integers(1, 4), st.integers(0, 5_000))
def test_bounded_streams_are_never_predicted_slower_than_one(
    graph: Graph, limit: int, wait: int
) -> None:
    built = schedule(graph, streams=limit, costs=RecordedCosts(wait=wait))
    decision = built.decision
    assert len(built.streams) <= limit
    assert decision.critical_path_ns <= decision.predicted_ns <= decision.sequential_ns
    if len(built.streams) > 1:
        assert decision.predicted_ns < decision.sequential_ns
    assert decision.predicted_ns == finish(built, wait)


def finish(built: Schedule, wait: int) -> int:
    """Virtual time: start every task when its stream and its waits allow it."""
    ends: dict[int, int] = {}
    while len(ends) < len(built.graph.tasks):
        for stream in built.streams:
            done = [task for task in stream if task in ends]
            if len(done) == len(stream):
                continue
            task = stream[len(done)]
            needs = [w.on for w in built.waits if w.task == task]
            if all(on in ends for on in needs):
                start = max([ends[done[-1]] if done else 0, *(ends[on] + wait for on in needs)])
                ends[task] = start + built.graph.tasks[task].cost
    return max(ends.values())


@settings(max_examples=150, deadline=None)
@given(sized_dags(7), st.integers(2, 3))
def test_bounded_streams_have_no_wait_that_another_implies(graph: Graph, limit: int) -> None:
    built = schedule(graph, streams=limit, costs=RecordedCosts(wait=1))
    order = happens_before(built)
    edges = schedule_edges(built)
    for wait in built.waits:
        assert closure(len(graph.tasks), edges - {(wait.on, wait.task)}) != order


def test_parallel_branches_are_spread_only_when_longer_than_the_waits() -> None:
    fork_and_join = [set(), {0}, {0}, {1, 2}]
    long = from_edges(fork_and_join, costs=[1000, 9000, 9000, 1000])
    short = from_edges(fork_and_join, costs=[1000, 1500, 1500, 1000])
    assert len(schedule(long, streams=2, costs=RecordedCosts(wait=1000)).streams) == 2
    assert schedule(short, streams=2, costs=RecordedCosts(wait=1000)).streams == ((0, 1, 2, 3),)


def test_a_part_that_gains_nothing_stays_on_one_stream() -> None:
    """A long fork is spread; the short one after it, where two waits cost more, is not."""
    before = [set(), {0}, {0}, {1, 2}, {3}, {3}, {4, 5}]
    graph = from_edges(before, costs=[1000, 9000, 9000, 1000, 1500, 1500, 1000])
    built = schedule(graph, streams=2, costs=RecordedCosts(wait=1000))
    assert sorted(map(len, built.streams)) == [1, 6]
    assert built.decision.predicted_ns == 1000 + 9000 + 2 * 1000 + 1000 + 3000 + 1000


@pytest.mark.parametrize(("wait", "streams"), [(1000, 2), (1100, 1), (1500, 1)])
def test_tiles_that_need_each_other_are_spread_only_if_that_is_faster(
    wait: int, streams: int
) -> None:
    """Two tiles a layer, each reading both of the layer below; one stream is taken in a tie."""
    before = [{t // 2 * 2 - 2, t // 2 * 2 - 1} if t > 1 else set() for t in range(22)]
    graph = from_edges(before, costs=[1000] * 22)
    built = schedule(graph, streams=2, costs=RecordedCosts(wait=wait))
    assert len(built.streams) == streams
    assert built.decision.predicted_ns == (22_000 if streams == 1 else 11_000 + 10 * wait)


def test_the_same_graph_gives_the_same_schedule() -> None:
    before = nasnet_like(120)
    for limit in (None, 1, 2, 5):
        first = schedule(from_edges(before), streams=limit)
        again = schedule(from_edges(before), streams=limit)
        assert first == again


def test_an_empty_graph_has_an_empty_schedule() -> None:
    built = schedule(from_edges([]))
    assert (built.streams, built.waits, built.arena_bytes) == ((), (), 0)
    assert built.arena_lower_bound == 0


def test_streams_must_be_positive() -> None:
    with pytest.raises(ScheduleError, match="streams=0"):
        schedule(from_edges([set()]), streams=0)


def test_a_tile_stays_where_most_of_what_it_reads_was_made() -> None:
    """Rows made by two tasks, then read in tiles of which each reads a few rows of the other's."""
    b = Builder()
    x = b.value(Role.INPUT, (16, 64))
    whole, after = b.value(shape=(16, 64)), b.value(shape=(16, 64))

    def rows(of: int, first: int, last: int) -> int:
        return b.value(shape=(last - first, 64), strides=(64, 1), base=of, offset=first * 64)

    for first, last in ((0, 8), (8, 16)):
        b.task([x], [rows(whole, first, last)], cost=10_000)
    for first, last, lower, upper in ((0, 8, 0, 9), (8, 16, 7, 16)):
        b.task([rows(whole, lower, upper)], [rows(after, first, last)], cost=10_000)
    built = schedule(b.graph(), streams=2, costs=RecordedCosts(wait=100, byte=1.0))
    assert sorted(map(sorted, built.streams)) == [[0, 2], [1, 3]]
