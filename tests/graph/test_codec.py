"""A graph as JSON, and JSON that is no graph."""

from __future__ import annotations

import copy
import json
import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sketch import Sketch

from nimble.errors import GraphError
from nimble.graph import Arg, DType, Graph, Ref, Symbol, decode, encode
from nimble.rewrite import fold_constants


def example() -> Graph:
    """Something of everything: views, versions, tokens, a prologue, every kind of argument."""
    s = Sketch()
    x, w = s.root("input", "x", 2, 3), s.root("parameter", "w", 2, 3)
    scale = s.transpose(s.call("aten.exp.default", Ref(w)))
    product = s.call("aten.mm.default", Ref(x), Ref(scale))
    drawn, _ = s.draw(s.root("state", "rng", dtype="token"), "aten.bernoulli.p", Ref(product), 0.5)
    new = s.update(s.root("state", "count", 2, 2), drawn)
    preserve = Symbol("memory_format", "preserve_format")
    out = s.call("aten._to_copy.default", Ref(new), dtype=DType.FLOAT64, memory_format=preserve)
    out = s.call("aten.cat.default", (Ref(out), Ref(out)), -1)
    return fold_constants(s.graph(out))


def with_argument(arg: Arg) -> Graph:
    s = Sketch()
    x = s.root("input", "x", 2)
    graph = s.graph(s.call("aten.add.Tensor", Ref(x), 1.0))
    return graph.with_tasks(replace(task, args=(Ref(x), arg)) for task in graph.tasks)


def through_json(graph: Graph) -> Graph:
    return decode(json.loads(json.dumps(encode(graph), allow_nan=False)))


def test_a_graph_survives_json() -> None:
    graph = example()
    assert graph.prologue is not None
    assert through_json(graph) == graph


SCALARS = st.none() | st.booleans() | st.text() | st.floats() | st.complex_numbers()
NUMBERS = st.integers(-(2**63), 2**64 - 1)
ARGUMENTS = st.recursive(
    SCALARS | NUMBERS | st.sampled_from(DType) | st.builds(Symbol, st.text(), st.text()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


def bits(arg: Arg) -> object:
    """The argument, with floats as bits: NaN equals itself, -0.0 does not equal 0.0."""
    if isinstance(arg, float):
        return "float", struct.pack(">d", arg)
    if isinstance(arg, complex):
        return "complex", bits(arg.real), bits(arg.imag)
    if isinstance(arg, tuple):
        return tuple(bits(item) for item in arg)
    return type(arg), arg


@settings(deadline=None)
@given(ARGUMENTS)
def test_arguments_survive_json_exactly(arg: Arg) -> None:
    assert bits(through_json(with_argument(arg)).tasks[0].args[1]) == bits(arg)


def test_which_nan_it_is_survives() -> None:
    (odd,) = struct.unpack(">d", bytes.fromhex("fff800000000beef"))
    assert math.isnan(odd)
    assert bits(through_json(with_argument(odd)).tasks[0].args[1]) == bits(odd)


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def nested_prologues(levels: int) -> dict[str, Any]:
    data = encode(example())
    for _ in range(levels):
        data = {**encode(example()), "prologue": data}
    return data


JUNK = st.recursive(
    SCALARS | NUMBERS | st.just(10**400) | st.just(-1) | st.just(2**62),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(JUNK)
def test_junk_is_refused(data: object) -> None:
    with pytest.raises(GraphError):
        decode(data)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_damaged_graph_is_refused_or_is_another_graph(data: st.DataObject) -> None:
    damaged = copy.deepcopy(PLAIN)
    for _ in range(data.draw(st.integers(1, 3))):
        damage(damaged, data)
    try:
        graph = decode(damaged)
    except GraphError:
        return
    assert encode(through_json(graph)) == encode(graph)


PLAIN = encode(example())


def damage(data: Any, choose: st.DataObject) -> None:
    """Replace, drop or double something inside, however deep."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = choose.draw(st.sampled_from(keys))
        if isinstance(data[key], dict | list) and data[key] and choose.draw(st.integers(0, 5)):
            data = data[key]
            continue
        match choose.draw(st.integers(0, 3)):
            case 0:
                del data[key]
            case 1 if isinstance(data, list):
                data.insert(key, data[key])
            case 2 if type(data[key]) is int:
                data[key] = choose.draw(st.integers(-2, 12) | st.just(2**62) | st.just(2**70))
            case _:
                data[key] = choose.draw(JUNK)
        return


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda d: d.pop("tasks"), "a dict with the keys"),
        (lambda d: d.update(more=1), "a dict with the keys"),
        (lambda d: d["values"][0].__setitem__(1, "owner"), "one of input, parameter"),
        (lambda d: d["values"][0].__setitem__(3, [2**40, 2**40]), "less than 2.63 bytes"),
        (lambda d: d["values"][0].__setitem__(3, [1] * 65), "at most 64"),
        (lambda d: d["values"][0].__setitem__(3, [True, 3]), "non-negative integer"),
        (lambda d: d["values"][0].__setitem__(6, -4), "non-negative integer"),
        (lambda d: d["tasks"][0].__setitem__(2, deep(5000)), "nested at most"),
        (lambda d: d["tasks"][0].__setitem__(3, [["a", 1], ["a", 2]]), "each name once"),
        (lambda d: d["tasks"][0].__setitem__(2, [{"bits": "zz"}]), "16 hexadecimal digits"),
        (lambda d: d["tasks"][0].__setitem__(2, [2**64]), "64 bits"),
        (lambda d: d["tasks"][0].__setitem__(0, "x" * 2**17), "at most 65536 characters"),
        (lambda d: d["tasks"][0].__setitem__(4, [10**9]), "does not exist"),
        (lambda d: d.update(prologue=nested_prologues(300)), "as a prologue has none"),
    ],
)
def test_what_is_wrong_is_said(damage: Any, why: str) -> None:
    damaged = copy.deepcopy(PLAIN)
    damage(damaged)
    with pytest.raises(GraphError, match=why):
        decode(damaged)
