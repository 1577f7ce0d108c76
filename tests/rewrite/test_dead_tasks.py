"""Tasks that nothing depends on are dropped; those with lasting effects never are."""

from __future__ import annotations

from sketch import Sketch

from nimble.graph import Graph, Ref, verify
from nimble.rewrite import remove_dead_tasks


def ops(graph: Graph) -> list[str]:
    return [task.op.split(".")[1] for task in graph.tasks]


def test_unread_results_and_what_only_they_need_are_dropped() -> None:
    s = Sketch()
    x = s.root("input", "x", 3)
    s.call("aten.exp.default", Ref(s.call("aten.sin.default", Ref(x))))
    graph = verify(remove_dead_tasks(s.graph(s.call("aten.relu.default", Ref(x)))))
    assert ops(graph) == ["relu"]
    assert len(graph.values) == 2


def test_a_task_stays_for_one_of_its_results() -> None:
    s = Sketch()
    x = s.root("input", "x", 3, 4)
    _, where = s.calls("aten.max.dim", Ref(x), 1)
    assert ops(remove_dead_tasks(s.graph(where))) == ["max"]


def test_a_result_read_through_a_view_is_read() -> None:
    s = Sketch()
    y = s.call("aten.relu.default", Ref(s.root("input", "x", 3, 4)))
    assert ops(remove_dead_tasks(s.graph(s.transpose(y)))) == ["relu"]


def test_inputs_stay_even_if_unused() -> None:
    s = Sketch()
    s.root("input", "unused", 3)
    x = s.root("input", "x", 3)
    s.root("parameter", "unused weight", 3)
    graph = verify(remove_dead_tasks(s.graph(s.call("aten.relu.default", Ref(x)))))
    assert [graph[v].name for v in graph.inputs] == ["unused", "x"]
    assert "unused weight" not in [v.name for v in graph.values]


def test_random_draws_stay_because_they_move_the_generator() -> None:
    s = Sketch()
    token, x = s.root("state", "rng", dtype="token"), s.root("input", "x", 3)
    s.draw(token, "aten.bernoulli.default", Ref(x))
    assert ops(remove_dead_tasks(s.graph(s.call("aten.relu.default", Ref(x))))) == [
        "bernoulli",
        "relu",
    ]


def test_writes_to_states_and_inputs_stay() -> None:
    for role in ("state", "input"):
        s = Sketch()
        target, x = s.root(role, "target", 3), s.root("input", "x", 3)
        s.update(target, s.call("aten.exp.default", Ref(x)))
        assert ops(remove_dead_tasks(s.graph())) == ["exp", "copy_"]
