"""Making a new graph out of an old one."""

from __future__ import annotations

import pytest
import torch
from reference import run
from sketch import Sketch

from nimble.graph import DType, Edit, Graph, Ref, Role, Value, compact, fresh, is_dense, verify


def chain() -> Graph:
    """x → exp → sin, of which a transposed view is returned."""
    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 2, 3)))
    return s.graph(s.transpose(s.call("aten.sin.default", Ref(y))))


def test_an_edit_that_keeps_all_tasks_changes_nothing() -> None:
    graph = chain()
    edit = Edit(graph)
    edit.tasks.extend(graph.tasks)
    assert edit.done() == graph


def test_compact_drops_unused_values_and_keeps_the_order_of_others() -> None:
    s = Sketch()
    s.root("input", "first", 1)
    s.root("parameter", "unused", 1)
    x = s.root("input", "x", 2, 3)
    s.transpose(x)
    graph = s.graph(s.call("aten.exp.default", Ref(s.view(x, (3,), (1,), 3))))
    small = verify(compact(graph))
    assert [v.name for v in small.values] == ["first", "x", "view of x", "exp_0"]
    assert [v.id for v in small.values] == [0, 1, 2, 3]
    assert [small[v].name for v in small.inputs] == ["first", "x"]
    assert compact(small) == small


def test_compact_keeps_what_a_version_overwrites() -> None:
    s = Sketch()
    s.root("parameter", "unused", 1)
    s.update(s.root("state", "count", 2), s.root("input", "x", 2))
    small = verify(compact(s.graph()))
    assert [v.name for v in small.values] == ["count", "x", "count'"]
    assert small[2].overwrites == 0


def test_an_alias_takes_its_views_along() -> None:
    s = Sketch()
    x = s.root("input", "x", 4, 3)
    part = s.view(x, (2, 3), (3, 1), 6)
    copy = s.call("aten.clone.default", Ref(part))
    row = s.view(copy, (3,), (1,), 3)
    graph = s.graph(s.call("aten.exp.default", Ref(row)))
    edit = Edit(graph)
    edit.tasks.append(graph.tasks[1])
    edit.alias(copy, part)
    after = verify(edit.done())
    (task,) = after.tasks
    read = after[task.reads[0]]
    assert (after.content(read.id).name, read.offset) == ("x", 9 * 4)
    x_ = torch.randn(4, 3)
    assert torch.equal(run(after, {}, [x_])[0], x_[3].exp())


def test_an_alias_of_a_whole_value_is_replaced_by_it() -> None:
    s = Sketch()
    x = s.root("input", "x", 3)
    copy = s.call("aten.clone.default", Ref(x))
    graph = s.graph(s.call("aten.add.Tensor", Ref(copy), Ref(x)))
    edit = Edit(graph)
    edit.tasks.append(graph.tasks[1])
    edit.alias(copy, x)
    (task,) = verify(edit.done()).tasks
    assert task.args == (Ref(0), Ref(0))
    assert task.reads == (0,)


def test_a_role_is_that_of_all_views_and_versions() -> None:
    s = Sketch()
    state = s.root("state", "count", 2, 2)
    s.transpose(s.update(state, s.root("input", "x", 2, 2)))
    edit = Edit(s.graph())
    edit.set_role(state, Role.OUTPUT)
    assert [v.role for v in edit.values if v.name != "x"] == [Role.OUTPUT] * 3


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), True),
        ((2, 1, 3), (3, 77, 1), True),
        ((), (), True),
        ((2, 3), (0, 1), False),
        ((2, 3), (4, 1), False),
        ((2, 2), (1, 1), False),
    ],
)
def test_dense_means_no_gap_and_no_overlap(
    shape: tuple[int, ...], strides: tuple[int, ...], dense: bool
) -> None:
    assert is_dense(Value(0, "v", Role.INPUT, DType.FLOAT32, shape, strides)) is dense


def test_fresh_names() -> None:
    assert fresh("a", {"b"}) == "a"
    assert fresh("a", {"a", "a_1"}) == "a_2"
