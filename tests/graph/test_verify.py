"""Every rule of the IR, broken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sketch import Sketch

from nimble.errors import GraphError
from nimble.graph import DType, Graph, Ref, Role, verify, verify_memory
from nimble.rewrite import fold_constants


def example() -> Graph:
    """%0 input, %1 view of it, %2 parameter, %3 and %4 results, %4 returned."""
    s = Sketch()
    x = s.root("input", "x", 2, 3)
    xt, w = s.transpose(x), s.root("parameter", "w", 3, 2)
    return s.graph(s.call("aten.relu.default", Ref(s.call("aten.add.Tensor", Ref(xt), Ref(w)))))


def value(place: int, **changes: Any) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        values = [replace(v, **changes) if v.id == place else v for v in graph.values]
        return replace(graph, values=tuple(values))

    return change


def task(place: int, **changes: Any) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        return graph.with_tasks(
            replace(t, **changes) if i == place else t for i, t in enumerate(graph.tasks)
        )

    return change


BROKEN: dict[str, Callable[[Graph], Graph]] = {
    "has id 7": value(2, id=7),
    "differ in length": value(2, strides=(1,)),
    "negative": value(2, strides=(-1, 1)),
    "both a view and a new version": value(1, overwrites=0),
    "which does not exist": value(1, base=9),
    "refers to itself": value(1, base=1),
    "is itself a view": value(2, base=1, role=Role.INPUT),
    "but the memory of": value(1, role=Role.PARAMETER),
    "ends at byte 28": value(1, offset=4),
    "which comes after it": value(0, overwrites=2, role=Role.PARAMETER),
    "overwrites memory of role parameter": value(3, overwrites=2, role=Role.PARAMETER),
    "touches %9": task(0, reads=(1, 2, 9)),
    "does not declare that it reads": task(0, reads=(1,)),
    "does not declare that it writes": task(0, writes=()),
    "neither an argument, a result nor a token": task(1, reads=(2, 3)),
    "not written yet": lambda g: g.with_tasks(reversed(g.tasks)),
    "writes a value twice": task(0, writes=(3, 3)),
    "whose role is parameter": task(1, writes=(2,), results=(2,)),
    "which task 0 has already written": task(1, writes=(3,), results=(3,)),
    "another task has the same name": task(1, name="add_0"),
    "is not a value of role input": lambda g: replace(g, inputs=(2,)),
    "output %9 does not exist": lambda g: replace(g, outputs=(9,)),
    "output %4 is written by no task": lambda g: g.with_tasks(g.tasks[:1]),
}


def test_the_example_obeys() -> None:
    assert verify(example()) == example()


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named(rule: str) -> None:
    with pytest.raises(GraphError) as error:
        verify(BROKEN[rule](example()))
    assert rule in str(error.value)


def test_contents_that_are_written_over_cannot_be_read() -> None:
    s = Sketch()
    state, x = s.root("state", "count", 2), s.root("input", "x", 2)
    new = s.update(state, x)
    s.call("aten.exp.default", Ref(new))
    s.graph(new)
    with pytest.raises(GraphError, match="written over"):
        s.graph(state)
    s.call("aten.exp.default", Ref(state))
    with pytest.raises(GraphError, match="not there any more"):
        s.graph()


def test_a_version_must_fit_and_its_memory_be_writable() -> None:
    s = Sketch()
    s.update(s.root("state", "count", 2), s.root("input", "x", 2))
    with pytest.raises(GraphError, match="does not fit"):
        verify(value(2, shape=(3,))(s.graph()))


def test_a_prologue_fills_constants_from_parameters() -> None:
    s = Sketch()
    x, w = s.root("input", "x", 2), s.root("parameter", "w", 2)
    graph = s.graph(s.call("aten.add.Tensor", Ref(x), Ref(s.call("aten.exp.default", Ref(w)))))
    graph = verify(fold_constants(graph))
    assert graph.prologue is not None
    for change, why in [
        (value(1, name="other"), "fills no constant"),
        (value(1, dtype=DType.FLOAT64), "fills no constant"),
        (value(1, role=Role.INTERMEDIATE), "fills no constant"),
        (value(0, role=Role.STATE), "which calls change"),
    ]:
        with pytest.raises(GraphError, match=why):
            verify(replace(graph, prologue=change(graph.prologue)))


def handed_out() -> Graph:
    """The example with its result in memory of the caller's."""
    return value(4, role=Role.OUTPUT)(example())


UNBOUND: dict[str, Callable[[Graph], Graph]] = {
    "no output shows it": lambda g: replace(g, outputs=(0,)),
    "not its roots of role input": lambda g: replace(g, inputs=()),
    "not its roots of role": lambda g: replace(g, inputs=(0, 0)),
    "is an output of role intermediate": value(4, role=Role.INTERMEDIATE),
    "shows float32": lambda g: replace(value(1, dtype=DType.UINT8)(g), outputs=(*g.outputs, 1)),
    "inside of a float32": value(1, offset=2, shape=(1, 1)),
}


@pytest.mark.parametrize("why", UNBOUND)
def test_memory_that_nobody_binds(why: str) -> None:
    verify_memory(handed_out())
    with pytest.raises(GraphError, match=why):
        verify_memory(UNBOUND[why](handed_out()))
