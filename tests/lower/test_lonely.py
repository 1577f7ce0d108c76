"""Tasks beside which nothing else could run are those that are cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_graphs import from_edges, sized_dags

import nimble
from nimble import zoo
from nimble.graph import Graph, dependencies
from nimble.lower.lonely import lonely

MS = 1_000_000


def chains(*lengths: int) -> list[set[int]]:
    """Independent chains of so many tasks."""
    before: list[set[int]] = []
    for length in lengths:
        for place in range(length):
            before.append({len(before) - 1} if place else set())
    return before


def test_all_tasks_of_a_chain_are_lonely() -> None:
    graph = from_edges(chains(5), costs=[MS] * 5)
    assert lonely(graph, 2) == set(range(5))


def test_chains_that_keep_all_workers_busy_are_left_alone() -> None:
    graph = from_edges(chains(5, 5), costs=[MS] * 10)
    assert lonely(graph, 2) == set()
    assert lonely(graph, 3)


def test_the_rest_of_a_longer_chain_is_shared() -> None:
    graph = from_edges(chains(8, 3), costs=[MS] * 11)
    found = lonely(graph, 2)
    assert found
    assert found <= {3, 4, 5, 6, 7}


def test_a_task_longer_than_all_beside_it_is_shared() -> None:
    graph = from_edges(chains(1, 1), costs=[10 * MS, MS])
    assert 0 in lonely(graph, 2)


@settings(max_examples=200, deadline=None)
@given(sized_dags(), st.integers(2, 4))
def test_what_depends_on_all_and_on_what_all_depend_is_lonely(graph: Graph, workers: int) -> None:
    """And which tasks are found depends on the graph alone."""
    found = lonely(graph, workers)
    assert found == lonely(graph, workers)
    before = dependencies(graph)
    above: list[set[int]] = []
    for needed in before:
        above.append({*needed, *(a for b in needed for a in above[b])})
    for t in range(len(before)):
        others = set(range(len(before))) - {t} - above[t]
        if all(t in above[other] for other in others):
            assert t in found


def test_networks_of_branches_keep_most_tasks_whole() -> None:
    model, args = zoo.build("nasnet_a_mobile@64")
    graph = nimble.compile(model, args, tune="off", workers=1).plans[0].lowered
    found = lonely(graph, 2)
    assert 0 < len(found) < len(graph.tasks) / 2
