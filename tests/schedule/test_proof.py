"""The proof accepts every schedule that is built, and none that could go wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interleavings import safe_in_every_order
from schedule_graphs import (
    Builder,
    RandomProgram,
    conflicting,
    from_edges,
    happens_before,
    sized_dags,
)

from nimble.errors import ProofError
from nimble.graph import DType, Graph, Ref, Role, dependencies
from nimble.schedule import Schedule, Wait, prove, schedule
from nimble.schedule.layout import Layout
from nimble.schedule.parts import Parts

seeds = st.integers(0, 2**32)


def accepts(built: Schedule) -> bool:
    try:
        prove(built)
    except ProofError:
        return False
    return True


def moved(built: Schedule, home: int, offset: int) -> Schedule:
    """The schedule with all that lives in one root moved to another offset."""
    graph = built.graph
    offsets = [
        old if graph.homes[v] != home or old is None else offset + graph[v].offset
        for v, old in enumerate(built.offsets)
    ]
    return replace(built, offsets=tuple(offsets))


def arena_roots(graph: Graph) -> list[int]:
    return [v.id for v in graph.roots(Role.INTERMEDIATE) if v.span]


def disturbed(built: Schedule, random: Random) -> Schedule:
    """The schedule with streams dealt anew, waits dropped or values moved: perhaps still right."""
    graph = built.graph
    kind = random.choice(["waits", "offset", "swap", "streams"])
    roots = [root for root in arena_roots(graph) if built.offsets[root] is not None]
    if kind == "waits" and built.waits:
        kept = [wait for wait in built.waits if random.random() < 0.7]
        return replace(built, waits=tuple(kept))
    if kind == "offset" and roots:
        root = random.choice(roots)
        room = built.arena_bytes + 8
        return replace(moved(built, root, random.randrange(room)), arena_bytes=room + 8)
    if kind == "swap" and len(roots) > 1:
        a, b = random.sample(roots, 2)
        first, second = built.offsets[a], built.offsets[b]
        assert first is not None
        assert second is not None
        return replace(moved(moved(built, a, second), b, first), arena_bytes=1 << 10)
    streams: list[list[int]] = [[], [], []]
    for task in range(len(graph.tasks)):
        random.choice(streams).append(task)
    place = {task: s for s, stream in enumerate(streams) for task in stream}
    waits = [
        Wait(task, on)
        for task, before in enumerate(dependencies(graph))
        for on in before
        if place[task] != place[on] and random.random() < 0.9
    ]
    return replace(built, streams=tuple(map(tuple, streams)), waits=tuple(waits))


@settings(max_examples=200, deadline=None)
@given(seeds, st.integers(1, 6), st.sampled_from([None, 1, 2]))
def test_what_is_built_is_proven_and_right_in_every_order(
    seed: int, tasks: int, streams: int | None
) -> None:
    built = schedule(RandomProgram(seed, tasks).graph(), streams=streams)
    assert safe_in_every_order(built)


@settings(max_examples=400, deadline=None)
@given(seeds, st.integers(2, 5))
def test_what_is_accepted_is_right_in_every_order(seed: int, tasks: int) -> None:
    random = Random(seed)
    built = disturbed(schedule(RandomProgram(seed, tasks).graph()), random)
    if accepts(built):
        assert safe_in_every_order(built)


@settings(max_examples=400, deadline=None)
@given(seeds, st.integers(2, 5))
def test_what_is_rejected_goes_wrong_in_some_order(seed: int, tasks: int) -> None:
    random = Random(seed)
    built = disturbed(schedule(RandomProgram(seed, tasks, plain=True).graph()), random)
    assert accepts(built) == safe_in_every_order(built)


@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(2, 8), st.sampled_from([None, 2, 3]))
def test_no_wait_can_be_left_out(seed: int, tasks: int, streams: int | None) -> None:
    built = schedule(RandomProgram(seed, tasks).graph(), streams=streams)
    for wait in built.waits:
        assert not accepts(replace(built, waits=tuple(w for w in built.waits if w != wait)))


@settings(max_examples=200, deadline=None)
@given(sized_dags(8), st.sampled_from([None, 1, 2]))
def test_no_two_conflicting_values_may_overlap(graph: Graph, streams: int | None) -> None:
    built = schedule(graph, streams=streams)
    wide = replace(built, arena_bytes=1 << 20)
    for pair in conflicting(graph, happens_before(built)):
        a, b = sorted(pair)
        start = built.offsets[a]
        assert start is not None
        for offset in (start, start + graph[a].span - 1, max(0, start - graph[b].span + 1)):
            assert not accepts(moved(wide, b, offset))


def chain() -> Schedule:
    return schedule(from_edges([set(), {0}, {1}, {2}], sizes=[64] * 4), streams=1)


def test_all_offsets_zero_is_rejected() -> None:
    built = chain()
    zeros = tuple(None if offset is None else 0 for offset in built.offsets)
    with pytest.raises(ProofError, match=r"task 1 't1' writes value %2 'v2' to bytes of value %1"):
        prove(replace(built, offsets=zeros))


def test_swapped_offsets_are_rejected() -> None:
    """The first and the third of a chain share bytes, which the second may not have."""
    built = chain()
    first, second, third = built.offsets[1:4]
    assert first == third != second
    with pytest.raises(ProofError, match="to bytes of value %1"):
        prove(replace(built, offsets=(None, first, third, second, None)))


def test_a_missing_wait_names_both_tasks_and_the_value() -> None:
    built = schedule(from_edges([set(), {0}, {0}, {1, 2}]))
    with pytest.raises(ProofError, match=r"task \d 't\d' reads value %\d 'v\d', but not after"):
        prove(replace(built, waits=built.waits[1:]))


def test_an_order_that_is_the_wrong_way_round_is_not_enough() -> None:
    """All tasks are ordered, yet the reader of the first value finds the second."""
    build = Builder()
    source = build.value(Role.INPUT)
    first, second = build.value(), build.value()
    results = [build.value(Role.OUTPUT) for _ in range(2)]
    build.task([source], [first])
    build.task([source], [second])
    build.task([first], [results[0]])
    build.task([second], [results[1]])
    built = schedule(build.graph(*results), streams=1)
    assert built.streams == ((0, 1, 2, 3),)
    assert not accepts(replace(built, offsets=(None, 0, 0, None, None)))
    reordered = replace(built, offsets=(None, 0, 0, None, None), streams=((0, 2, 1, 3),))
    assert accepts(reordered)


def test_a_result_may_overlap_an_operand_only_in_place() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    operand, result, last = build.value(), build.value(), build.value(Role.OUTPUT)
    build.task([source], [operand])
    build.task([operand], [result])
    build.task([result], [last])
    built = schedule(build.graph(last))
    assert built.offsets[operand] != built.offsets[result]
    assert not accepts(moved(moved(built, operand, 0), result, 0))

    build = Builder()
    source = build.value(Role.INPUT)
    operand = build.value()
    result = build.value(overwrites=operand)
    last = build.value(Role.OUTPUT)
    build.task([source], [operand])
    build.task([operand], [result])
    build.task([result], [last])
    assert schedule(build.graph(last)).arena_bytes == 64


def in_one_stream(build: Builder, *outputs: int) -> Schedule:
    """All tasks in order and all roots side by side, without asking for a proof."""
    graph = build.graph(*outputs)
    trivial = schedule(from_edges([set()]))
    offsets: list[int | None] = []
    for v in graph.values:
        in_arena = graph.home(v.id).role is Role.INTERMEDIATE
        offsets.append(64 * graph.homes[v.id] + v.offset if in_arena else None)
    tasks = tuple(range(len(graph.tasks)))
    return replace(
        trivial, graph=graph, streams=(tasks,), offsets=tuple(offsets), arena_bytes=1 << 10
    )


def test_in_place_means_the_very_next_version() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    first = build.value()
    second = build.value(overwrites=first)
    third = build.value(overwrites=second)
    build.task([source], [first])
    build.task([first], [third])
    with pytest.raises(ProofError, match="task 1 't1' writes value %3 'v3' over value %1 'v1'"):
        prove(in_one_stream(build, third))


def test_a_task_may_not_write_a_value_and_its_next_version() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    first = build.value()
    second = build.value(overwrites=first)
    build.task([source], [first, second])
    with pytest.raises(ProofError, match="over value %1 'v1', but not after task 0 't0' used it"):
        prove(in_one_stream(build, second))


def test_a_task_may_not_read_what_it_writes_unless_other_elements() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    whole = build.value(shape=(4,))
    halves = [build.value(shape=(2,), base=whole, strides=(2,), offset=at) for at in (0, 1)]
    result = build.value(Role.OUTPUT)
    build.task([source], [halves[0]])
    build.task([halves[0]], [halves[1]])
    build.task([whole], [result])
    assert accepts(in_one_stream(build, result))
    build.tasks[1] = replace(build.tasks[1], args=(Ref(whole),), reads=(whole,))
    with pytest.raises(ProofError, match="while it writes"):
        prove(in_one_stream(build, result))


def test_two_results_of_a_task_may_not_overlap() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    one, other, last = build.value(), build.value(), build.value(Role.OUTPUT)
    build.task([source], [one, other])
    build.task([one], [last])
    built = schedule(build.graph(last))
    assert not accepts(moved(moved(built, one, 0), other, 2))


def test_an_output_in_the_arena_is_read_at_the_end() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    kept, passing, last = (build.value(shape=(64,)) for _ in range(3))
    build.task([source], [kept])
    build.task([kept], [passing])
    build.task([passing], [last])
    built = schedule(build.graph(kept, last), streams=1)
    place = built.offsets[kept]
    assert place is not None
    with pytest.raises(ProofError, match="which the caller uses"):
        prove(moved(built, last, place))


def test_the_next_replay_must_find_the_last_version_of_a_state() -> None:
    """An older one cannot be an output: its memory holds the newer one when the caller looks."""
    build = Builder()
    state = build.value(Role.STATE)
    first = build.value(Role.STATE, overwrites=state)
    second = build.value(Role.STATE, overwrites=first)
    build.task([state], [first])
    build.task([first], [second])
    assert accepts(schedule(build.graph(second)))
    with pytest.raises(ProofError, match="written over"):
        schedule(replace(build.graph(second), outputs=(first,)))


def test_parameters_are_never_written() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    result = build.value(Role.OUTPUT)
    build.task([source], [result])
    built = schedule(build.graph(result))
    weight = replace(built.graph[result], role=Role.PARAMETER)
    graph = replace(built.graph, values=(built.graph[source], weight))
    with pytest.raises(ProofError, match="whose role is parameter"):
        prove(replace(built, graph=graph))
    with pytest.raises(ProofError, match="whose role is parameter"):
        Parts(Layout(graph, built.offsets, built.arena_bytes))


def test_only_views_have_an_offset_in_their_home() -> None:
    built = chain()
    shifted = replace(built.graph[0], offset=2)
    graph = replace(built.graph, values=(shifted, *built.graph.values[1:]))
    with pytest.raises(ProofError, match="value %0 'v0' is no view, but has an offset"):
        prove(replace(built, graph=graph))


def test_what_is_read_must_be_written_in_the_same_replay() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    whole = build.value(shape=(8,))
    half = build.value(shape=(4,), base=whole)
    result = build.value(Role.OUTPUT)
    build.task([source], [half])
    build.task([whole], [result])
    with pytest.raises(ProofError, match="not every element"):
        schedule(build.graph(result))


def test_slices_of_channels_may_be_written_side_by_side() -> None:
    """Their bytes interleave, their elements do not; a concat along channels that costs nothing."""
    build = Builder()
    source = build.value(Role.INPUT)
    shape, strides = (1, 6, 4, 4), (96, 1, 24, 6)
    whole = build.value(shape=shape, strides=strides, dtype=DType.FLOAT32)
    result = build.value(Role.OUTPUT)
    for first, last in ((0, 2), (2, 3), (3, 6)):
        for row in (0, 2):
            part = build.value(
                shape=(1, last - first, 2, 4),
                strides=strides,
                dtype=DType.FLOAT32,
                base=whole,
                offset=4 * (first + 24 * row),
            )
            build.task([source], [part])
    flat = build.value(shape=(96,), dtype=DType.FLOAT32, base=whole)
    build.task([flat], [result])
    built = schedule(build.graph(result))
    assert len(built.streams) == 6

    wider = replace(built.graph[3], shape=(1, 3, 2, 4))
    values = (*built.graph.values[:3], wider, *built.graph.values[4:])
    with pytest.raises(ProofError, match="are not known to be different elements"):
        prove(replace(built, graph=replace(built.graph, values=values)))


def test_draws_from_the_random_generator_stay_in_order() -> None:
    build = Builder()
    tokens = [build.value(shape=(), dtype=DType.TOKEN) for _ in range(3)]
    results = [build.value(Role.OUTPUT) for _ in range(3)]
    for i, result in enumerate(results):
        build.task(tokens[i - 1 : i] if i else [], [result, tokens[i]])
    built = schedule(build.graph(*results))
    assert built.streams == ((0, 1, 2),)
    assert not accepts(replace(built, streams=((1, 0, 2),)))


def broken(built: Schedule) -> dict[str, Schedule]:
    streams, waits, offsets = built.streams, built.waits, built.offsets
    first = next(v for v, offset in enumerate(offsets) if offset is not None)

    def placed(offset: int | None) -> tuple[int | None, ...]:
        return (*offsets[:first], offset, *offsets[first + 1 :])

    return {
        "is on no stream": replace(built, streams=streams[1:]),
        "runs twice": replace(built, streams=(*streams, streams[0])),
        "task 99, which does not exist": replace(built, streams=(*streams, (99,))),
        "task -1, which does not exist": replace(built, waits=(Wait(-1, 0),)),
        "on its own stream": replace(built, waits=(*waits, Wait(streams[0][1], streams[0][0]))),
        "deadlock": replace(built, waits=(*waits, Wait(waits[0].on, waits[0].task))),
        "not inside the arena": replace(built, offsets=placed(built.arena_bytes)),
        "offset -64": replace(built, offsets=placed(-64)),
        "no place in the arena": replace(built, offsets=placed(None)),
        "is not in the arena": replace(built, offsets=(0, *offsets[1:])),
        "offsets were given": replace(built, offsets=offsets[1:]),
        "an arena cannot have": replace(built, arena_bytes=-1),
    }


@pytest.mark.parametrize("why", broken(schedule(from_edges([set(), {0}, {0}, {1, 2}]))))
def test_nonsense_is_rejected_with_a_reason(why: str) -> None:
    built = broken(schedule(from_edges([set(), {0}, {0}, {1, 2}])))[why]
    with pytest.raises(ProofError, match=why):
        prove(built)


def test_offsets_must_be_aligned_and_agree_with_their_home() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    whole = build.value(shape=(4,), dtype=DType.FLOAT32)
    view = build.value(shape=(2,), dtype=DType.FLOAT32, base=whole, offset=8)
    result = build.value(Role.OUTPUT)
    build.task([source], [whole])
    build.task([view], [result])
    built = schedule(build.graph(result))
    with pytest.raises(ProofError, match="not aligned"):
        prove(moved(built, whole, 2))
    with pytest.raises(ProofError, match="belongs 8 bytes into"):
        prove(replace(built, offsets=(None, 0, 16, None)))


def hostile(built: Schedule, random: Random) -> Schedule:
    """One number anywhere in the schedule or its graph replaced by another."""
    graph = built.graph
    number = random.choice([-(2**70), -1, 0, 1, 2, 3, 5, 63, 64, 2**31, 2**62, 2**63, 10**30])
    kind = random.choice(["stream", "wait", "offset", "arena", "value", "task", "outputs"])
    if kind == "stream":
        s = random.randrange(len(built.streams))
        tasks = list(built.streams[s])
        tasks[random.randrange(len(tasks))] = number
        return replace(built, streams=(*built.streams[:s], tuple(tasks), *built.streams[s + 1 :]))
    if kind == "wait":
        other = random.randrange(len(graph.tasks))
        wait = random.choice([Wait(number, other), Wait(other, number)])
        return replace(built, waits=(*built.waits, wait))
    if kind == "offset":
        v = random.randrange(len(built.offsets))
        return replace(built, offsets=(*built.offsets[:v], number, *built.offsets[v + 1 :]))
    if kind == "arena":
        return replace(built, arena_bytes=number)
    if kind == "outputs":
        return replace(built, graph=replace(graph, outputs=(*graph.outputs, number)))
    if kind == "value":
        v = random.randrange(len(graph.values))
        field = random.choice(["id", "shape", "strides", "base", "offset", "overwrites"])
        changed: object = number
        if field in ("shape", "strides"):
            old = getattr(graph[v], field)
            changed = (number,) * random.choice([len(old), 1, 100])
        value = replace(graph[v], **{field: changed})
        values = (*graph.values[:v], value, *graph.values[v + 1 :])
        return replace(built, graph=replace(graph, values=values))
    t = random.randrange(len(graph.tasks))
    field = random.choice(["reads", "writes", "results"])
    task = replace(graph.tasks[t], **{field: (*getattr(graph.tasks[t], field), number)})
    return replace(built, graph=graph.with_tasks((*graph.tasks[:t], task, *graph.tasks[t + 1 :])))


@settings(max_examples=500, deadline=None)
@given(seeds, st.integers(1, 6))
@example(533092, 3)  # A view that counts the gaps of its base as elements.
def test_numbers_from_an_untrusted_file_are_accepted_only_if_harmless(
    seed: int, tasks: int
) -> None:
    built = hostile(schedule(RandomProgram(seed, tasks).graph()), Random(seed))
    if accepts(built) and all(value.span < 1000 for value in built.graph.values):
        assert safe_in_every_order(built)


def test_two_versions_of_one_value_are_rejected() -> None:
    build = Builder()
    source = build.value(Role.INPUT)
    state = build.value(Role.STATE)
    versions = [build.value(Role.STATE, overwrites=state) for _ in range(2)]
    for version in versions:
        build.task([source], [version])
    with pytest.raises(ProofError, match="both overwrite"):
        schedule(build.graph(*versions), streams=1)
