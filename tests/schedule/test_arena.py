"""The arena: values share bytes only when ordered, close to a bound that is proven."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schedule_graphs import (
    Builder,
    Pairs,
    conflicting,
    from_edges,
    happens_before,
    nasnet_like,
    sized_dags,
    users,
)

from nimble.errors import MemoryLimitError
from nimble.graph import DType, Graph, Role
from nimble.schedule import Schedule, schedule
from nimble.schedule.frugal import frugal
from nimble.schedule.lifetimes import homes, peak
from nimble.schedule.order import Order


def rounded(size: int) -> int:
    return (size + 63) // 64 * 64


def heaviest(graph: Graph, order: Pairs) -> int:
    """The most bytes in roots that all conflict, by trying every set of roots."""
    clashes = conflicting(graph, order)
    roots = list(users(graph))
    return max(
        sum(rounded(graph[root].span) for root in chosen)
        for count in range(len(roots) + 1)
        for chosen in combinations(roots, count)
        if all(frozenset(pair) in clashes for pair in combinations(chosen, 2))
    )


def in_sequence(count: int) -> Pairs:
    return frozenset(combinations(range(count), 2))


@settings(max_examples=250, deadline=None)
@given(sized_dags(8), st.sampled_from([None, 1, 2]))
def test_arena_is_valid_and_bounds_are_exact(graph: Graph, streams: int | None) -> None:
    built = schedule(graph, streams=streams)
    order = happens_before(built)
    for pair in conflicting(graph, order):
        a, b = sorted(pair, key=lambda root: built.offsets[root] or 0)
        start, end = built.offsets[a], built.offsets[b]
        assert start is not None
        assert end is not None
        assert start + graph[a].span <= end
    assert built.arena_lower_bound == heaviest(graph, order) <= built.arena_bytes
    assert built.sequential_lower_bound == heaviest(graph, in_sequence(len(graph.tasks)))
    assert built.arena_bytes <= built.intermediates_bytes
    assert built.arena_bytes % 64 == 0


@settings(max_examples=100, deadline=None)
@given(sized_dags(8))
def test_small_graphs_come_close_to_the_bound(graph: Graph) -> None:
    built = schedule(graph, streams=1)
    assert built.arena_bytes <= 1.34 * built.arena_lower_bound


def test_a_chain_needs_only_two_values_at_a_time() -> None:
    graph = from_edges([set(), {0}, {1}, {2}, {3}], sizes=[64] * 5)
    built = schedule(graph)
    assert built.arena_bytes == built.arena_lower_bound == 128
    assert built.intermediates_bytes == 4 * 64


def test_views_and_versions_share_the_bytes_of_their_home() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    whole = build.value(shape=(256,))
    right = build.value(shape=(128,), base=whole, offset=128)
    version = build.value(shape=(256,), overwrites=whole)
    result = build.value(Role.OUTPUT)
    build.task([source], [whole])
    build.task([whole], [version])
    build.task([version], [result])
    built = schedule(build.graph(result))
    assert built.arena_bytes == built.intermediates_bytes == 256
    assert built.offsets == (None, 0, 128, 0, None)
    assert built.offsets[right] == 128


def test_tokens_and_empty_values_take_no_bytes() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    token = build.value(shape=(), dtype=DType.TOKEN)
    empty = build.value(shape=(0, 8))
    result = build.value(Role.OUTPUT)
    build.task([source], [token, empty])
    build.task([token, empty], [result])
    built = schedule(build.graph(result))
    assert built.offsets == (None, None, 0, None)
    assert built.arena_bytes == 0


def test_a_value_that_no_task_touches_has_no_place() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    build.value(shape=(1 << 20,))
    result = build.value(Role.OUTPUT)
    build.task([source], [result])
    built = schedule(build.graph(result))
    assert (built.offsets, built.arena_bytes) == ((None, None, None), 0)


def test_an_output_in_the_arena_is_kept_to_the_end() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    kept, passing, last = (build.value(shape=(64,)) for _ in range(3))
    build.task([source], [kept])
    build.task([kept], [passing])
    build.task([passing], [last])
    built = schedule(build.graph(kept, last))
    assert built.arena_bytes == 3 * 64


@settings(max_examples=80, deadline=None)
@given(sized_dags(6))
def test_frugal_order_is_the_best_order_of_a_small_graph(graph: Graph) -> None:
    order = Order.of([set(task_parents) for task_parents in parents_of(graph)])
    needed = homes(graph)
    best = min(
        peak(needed, sequence)
        for sequence in permutations(range(len(graph.tasks)))
        if all(
            sequence.index(p) < sequence.index(t)
            for t, parents in enumerate(order.parents)
            for p in parents
        )
    )
    assert peak(needed, frugal(needed, order)) == best


def parents_of(graph: Graph) -> list[set[int]]:
    return [{graph.writer[v] for v in task.reads if v in graph.writer} for task in graph.tasks]


@settings(max_examples=80, deadline=None)
@given(sized_dags(7), st.floats(0, 1), st.sampled_from([None, 2, 3]))
def test_a_limit_is_kept_or_what_is_possible_is_said(
    graph: Graph, share: float, streams: int | None
) -> None:
    free = schedule(graph, streams=streams)
    assume(free.arena_bytes)
    limit = int(share * free.arena_bytes)
    failed: MemoryLimitError | None = None
    try:
        assert schedule(graph, streams=streams, memory_limit=limit).arena_bytes <= limit
    except MemoryLimitError as error:
        failed = error
    if failed is not None:
        assert limit < failed.smallest
        assert failed.lower_bound <= lowest_in_any_order(graph)
        within = schedule(graph, streams=streams, memory_limit=failed.smallest)
        assert within.arena_bytes <= failed.smallest


def lowest_in_any_order(graph: Graph) -> int:
    """The smallest sequential bound over all orders of the tasks; parallel orders need no less."""
    parents = parents_of(graph)
    needed = homes(graph)
    return min(
        peak(needed, sequence)
        for sequence in permutations(range(len(graph.tasks)))
        if all(set(sequence[:i]) >= parents[t] for i, t in enumerate(sequence))
    )


def test_a_limit_trades_streams_for_memory() -> None:
    graph = from_edges([set(), {0}, {0}, {0}, {1, 2, 3}], [64, 6400, 6400, 64, 64], [1000] * 5)
    wide = schedule(graph)
    assert (len(wide.streams), wide.arena_bytes) == (3, 2 * 6400 + 128)
    chains = [set(), {0}, {1}, {0}, {3}, {2, 4}]
    graph = from_edges(chains, [64, 6400, 64, 6400, 64, 64], [9000] * 6)
    assert len(schedule(graph).streams) == 2
    tight = schedule(graph, memory_limit=7000)
    assert len(tight.streams) == 1
    assert tight.arena_bytes <= 7000


def test_an_impossible_limit_names_what_is_possible() -> None:
    graph = from_edges([set(), {0}, {1}, {2}], sizes=[640, 1280, 640, 64])
    with pytest.raises(MemoryLimitError, match="memory_limit=1000") as caught:
        schedule(graph, memory_limit=1000)
    assert caught.value.smallest == caught.value.lower_bound == 640 + 1280


def test_bytes_are_handed_on_past_smaller_values() -> None:
    """The bytes of the first large value serve the second one, several tasks later."""
    graph = from_edges([set(), {0}, {1}, {2}, {3}, {4}, {5}], [640, 64, 64, 64, 640, 64, 64])
    assert schedule(graph).arena_lower_bound == 640 + 64


def test_large_values_do_not_overflow_the_bound() -> None:
    size = 1 << 36
    built: Schedule = schedule(from_edges([set(), {0}, {0}, {1, 2}], sizes=[size] * 4))
    assert built.arena_lower_bound == built.arena_bytes == 3 * size


def test_a_large_network_comes_within_two_percent() -> None:
    before = nasnet_like(300)
    sizes = [1000 + 7919 * t % 60_000 for t in range(len(before))]
    for streams in (None, 1, 2):
        built = schedule(from_edges(before, sizes), streams=streams)
        assert built.arena_bytes <= 1.02 * built.arena_lower_bound
