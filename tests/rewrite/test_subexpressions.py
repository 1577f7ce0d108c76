"""What is computed twice alike is computed once, unless someone could tell."""

from __future__ import annotations

import pytest
from sketch import Sketch

from nimble.graph import Arg, Graph, Ref, Role, verify
from nimble.rewrite import merge_subexpressions


def ops(graph: Graph) -> list[str]:
    return [task.op.split(".")[1] for task in verify(merge_subexpressions(graph)).tasks]


def test_equal_tasks_become_one_and_so_do_those_that_read_them() -> None:
    s = Sketch()
    x = s.root("input", "x", 3, 4)
    a, b = (s.transpose(s.call("aten.exp.default", Ref(x))) for _ in range(2))
    c, d = (s.call("aten.sin.default", Ref(v)) for v in (a, b))
    assert ops(s.graph(s.call("aten.add.Tensor", Ref(c), Ref(d)))) == ["exp", "sin", "add"]


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, 1.0), (1, True), (2.0, 3.0)])
def test_arguments_that_only_look_equal_are_told_apart(one: Arg, other: Arg) -> None:
    s = Sketch()
    x = s.root("input", "x", 3, dtype="float64")
    a, b = (s.call("aten.mul.Tensor", Ref(x), number) for number in (one, other))
    assert ops(s.graph(s.call("aten.div.Tensor", Ref(a), Ref(b)))) == ["mul", "mul", "div"]


def test_different_views_of_one_value_are_told_apart() -> None:
    s = Sketch()
    x = s.root("input", "x", 4)
    a, b = (s.call("aten.exp.default", Ref(s.view(x, (2,), (1,), at))) for at in (0, 2))
    assert ops(s.graph(s.call("aten.add.Tensor", Ref(a), Ref(b)))) == ["exp", "exp", "add"]


def test_a_state_before_and_after_its_update_is_told_apart() -> None:
    s = Sketch()
    state = s.root("state", "count", 3)
    a = s.call("aten.exp.default", Ref(state))
    after = s.update(state, s.call("aten.add.Scalar", Ref(state), 1.0))
    b = s.call("aten.exp.default", Ref(after))
    graph = s.graph(s.call("aten.add.Tensor", Ref(a), Ref(b)))
    assert ops(graph) == ["exp", "add", "copy_", "exp", "add"]


def test_two_outputs_stay_two_tensors() -> None:
    s = Sketch()
    x = s.root("input", "x", 3)
    a, b = (s.call("aten.exp.default", Ref(x)) for _ in range(2))
    assert ops(s.graph(a, s.transpose(b))) == ["exp", "exp"]


def test_an_output_may_be_shared_with_tasks() -> None:
    for output_comes_first in (True, False):
        s = Sketch()
        x = s.root("input", "x", 3)
        a, b = (s.call("aten.exp.default", Ref(x)) for _ in range(2))
        output, inner = (a, b) if output_comes_first else (b, a)
        graph = s.graph(output, s.call("aten.sin.default", Ref(inner)))
        merged = verify(merge_subexpressions(graph))
        assert [task.op.split(".")[1] for task in merged.tasks] == ["exp", "sin"]
        assert {merged.content(v).role for v in merged.outputs} == {Role.OUTPUT}
        assert len({merged.content(v).id for v in merged.outputs}) == 2


def test_random_and_uninitialised_values_are_never_shared() -> None:
    s = Sketch()
    token, x = s.root("state", "rng", dtype="token"), s.root("input", "x", 3)
    a, token = s.draw(token, "aten.bernoulli.default", Ref(x))
    b, token = s.draw(token, "aten.bernoulli.default", Ref(x))
    c, d = (s.call("aten.empty_like.default", Ref(x)) for _ in range(2))
    graph = s.graph(
        s.call("aten.add.Tensor", Ref(a), Ref(b)), s.call("aten.add.Tensor", Ref(c), Ref(d))
    )
    assert ops(graph).count("bernoulli") == ops(graph).count("empty_like") == 2


def test_a_value_that_is_written_over_is_not_shared() -> None:
    s = Sketch()
    x = s.root("input", "x", 3)
    a, b = (s.call("aten.exp.default", Ref(x)) for _ in range(2))
    c = s.update(a, x)
    graph = s.graph(s.call("aten.add.Tensor", Ref(b), Ref(c)))
    assert ops(graph) == ["exp", "exp", "copy_", "add"]
