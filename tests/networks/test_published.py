"""Our captures against published graphs, arenas against their bounds, proofs against mutations."""

import dataclasses
import random

import pytest
from schedule_graphs import conflicting, happens_before

from nimble import zoo
from nimble.capture import Target, capture
from nimble.capture.structure import flatten
from nimble.errors import MemoryLimitError, ProofError
from nimble.graph import RecordedCosts
from nimble.rewrite import rewrite
from nimble.schedule import Wait, prove, schedule

_CACHE = {}


def captured(name):
    if name not in _CACHE:
        model, args = zoo.build(name)
        tensors, structure = flatten((args, {}))
        _CACHE[name] = capture(Target.of(model), tensors, structure, name).graph
    return _CACHE[name]


def with_costs(graph):
    """Costs that every machine agrees on: bytes touched, so that big tasks count as long ones."""
    return graph.with_tasks(
        dataclasses.replace(t, cost=1000 + sum(graph[v].span for v in (*t.reads, *t.writes)))
        for t in graph.tasks
    )


@pytest.mark.parametrize(
    ("name", "chains", "streams"),
    [("googlenet", 28, 4), ("resnet50", 5, 2), ("mobilenet_v2", 1, 1), ("inception_v3", 36, 6)],
)
def test_chains_and_streams_of_published_graphs(name, chains, streams):
    made = schedule(rewrite(captured(name))[0])
    assert (made.decision.chains, len(made.streams)) == (chains, streams)
    assert len(made.waits) == made.decision.meg_edges - (made.decision.tasks - chains)


ARENA = ["mobilenet_v2", "resnet50", "inception_v3", "googlenet", "bert_base"]


@pytest.mark.parametrize("name", ARENA)
@pytest.mark.parametrize("streams", [1, 2])
def test_arena_is_within_two_percent_of_its_lower_bound(name, streams):
    graph = with_costs(rewrite(captured(name))[0])
    made = schedule(graph, streams=streams, costs=RecordedCosts())
    print(
        f"{name} on {len(made.streams)}: arena {made.arena_bytes}, bound {made.arena_lower_bound}, "
        f"in sequence {made.sequential_lower_bound}, intermediates {made.intermediates_bytes}"
    )
    assert made.arena_lower_bound <= made.arena_bytes <= 1.02 * made.arena_lower_bound


def test_nasnet_takes_at_most_16_percent_of_its_intermediates():
    graph = with_costs(rewrite(captured("nasnet_a_mobile"))[0])
    made = schedule(graph, streams=2, costs=RecordedCosts())
    assert len(made.streams) == 2
    assert made.arena_bytes <= 0.16 * made.intermediates_bytes


def test_a_memory_limit_is_honoured_or_refused_with_both_bounds():
    graph = with_costs(rewrite(captured("googlenet"))[0])
    free = schedule(graph, streams=2, costs=RecordedCosts())
    tight = schedule(graph, streams=1, costs=RecordedCosts()).arena_bytes
    assert (
        schedule(graph, streams=2, costs=RecordedCosts(), memory_limit=tight).arena_bytes <= tight
    )
    with pytest.raises(MemoryLimitError) as error:
        schedule(graph, streams=2, costs=RecordedCosts(), memory_limit=1000)
    assert 1000 < error.value.lower_bound <= error.value.smallest <= free.arena_bytes
    assert str(error.value.smallest) in str(error.value)


PROVEN = ["googlenet", "inception_v3", "nasnet_a_mobile", "resnet50", "bert_tiny", "densenet121"]


@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_notices_every_deleted_wait(name):
    graph = with_costs(rewrite(captured(name))[0])
    for streams in (None, 2):
        made = schedule(graph, streams=streams, costs=RecordedCosts())
        waits = made.waits if len(made.waits) <= 60 else random.Random(0).sample(made.waits, 60)
        for wait in waits:
            left = tuple(w for w in made.waits if w != wait)
            with pytest.raises(ProofError):
                prove(dataclasses.replace(made, waits=left))


@pytest.mark.full
@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_notices_every_deleted_wait_of_all(name):
    graph = with_costs(rewrite(captured(name))[0])
    for streams in (None, 2):
        made = schedule(graph, streams=streams, costs=RecordedCosts())
        for wait in made.waits:
            with pytest.raises(ProofError):
                prove(dataclasses.replace(made, waits=tuple(w for w in made.waits if w != wait)))


@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_notices_all_offsets_zero(name):
    made = schedule(rewrite(captured(name))[0], streams=1)
    zero = tuple(None if offset is None else 0 for offset in made.offsets)
    with pytest.raises(ProofError):
        prove(dataclasses.replace(made, offsets=zero))


def overlapping(made, a, b):
    """The schedule with the root `a` moved to where `b` lies."""
    shift = made.offsets[b] - made.offsets[a]
    offsets = tuple(
        o + shift if o is not None and made.graph.homes[v] == a else o
        for v, o in enumerate(made.offsets)
    )
    return dataclasses.replace(made, offsets=offsets, arena_bytes=10**9)


@pytest.mark.parametrize("streams", [1, 2, None])
@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_notices_conflicting_pairs_that_overlap(name, streams):
    made = schedule(with_costs(rewrite(captured(name))[0]), streams=streams, costs=RecordedCosts())
    pairs = sorted(map(sorted, conflicting(made.graph, happens_before(made))))
    assert len(pairs) > 10
    for a, b in random.Random(0).sample(pairs, 10):
        with pytest.raises(ProofError):
            prove(overlapping(made, a, b))


@pytest.mark.full
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_notices_every_conflicting_pair_that_overlaps(name, streams):
    made = schedule(with_costs(rewrite(captured(name))[0]), streams=streams, costs=RecordedCosts())
    for a, b in conflicting(made.graph, happens_before(made)):
        with pytest.raises(ProofError):
            prove(overlapping(made, a, b))


def test_a_wait_in_a_circle_is_refused():
    made = schedule(captured("googlenet"))
    first = made.waits[0]
    circle = Wait(first.on, first.task)
    with pytest.raises(ProofError):
        prove(dataclasses.replace(made, waits=(*made.waits, circle)))


def test_a_large_network_is_planned_and_proven(capsys):
    import time

    graph = captured("nasnet_a_mobile")
    start = time.perf_counter()
    prove(schedule(graph))
    with capsys.disabled():
        print(f" [{len(graph.tasks)} tasks in {time.perf_counter() - start:.2f} s]", end="")
