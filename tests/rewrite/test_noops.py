"""Copies that nobody can tell from their original are not made."""

from __future__ import annotations

import pytest
import torch
from reference import operator, run
from sketch import Sketch
from torch import nn
from tracing import trace

from nimble.graph import Arg, DType, Graph, Ref, Role, Symbol, verify
from nimble.rewrite import remove_noops

CONTIGUOUS = Symbol("memory_format", "contiguous_format")


def ops(graph: Graph) -> list[str]:
    return [task.op.split(".")[1] for task in verify(remove_noops(graph)).tasks]


def test_a_copy_between_tasks_is_not_made() -> None:
    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 3, 4)))
    copy = s.call("aten.clone.default", Ref(y), memory_format=CONTIGUOUS)
    again = s.call("aten._to_copy.default", Ref(copy), dtype=DType.FLOAT32)
    graph = s.graph(s.call("aten.sin.default", Ref(s.transpose(again))))
    assert ops(graph) == ["exp", "sin"]
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(remove_noops(graph), {}, [x])[0], x.exp().t().sin())


def test_a_copy_of_part_of_a_value_gives_way_to_the_view() -> None:
    s = Sketch()
    x = s.root("input", "x", 4, 3)
    copy = s.call("aten.clone.default", Ref(s.view(x, (2, 3), (3, 1), 3)))
    last = s.view(copy, (3,), (1,), 3)
    graph = s.graph(s.call("aten.exp.default", Ref(last)))
    assert ops(graph) == ["exp"]
    x_ = torch.randn(4, 3)
    torch.testing.assert_close(run(remove_noops(graph), {}, [x_])[0], x_[2].exp())


def test_a_copy_to_another_layout_or_dtype_stays() -> None:
    s = Sketch()
    x = s.root("input", "x", 3, 4)
    a = s.call("aten.clone.default", Ref(s.transpose(x)), memory_format=CONTIGUOUS)
    b = s.call("aten._to_copy.default", Ref(a), dtype=DType.FLOAT64)
    assert ops(s.graph(s.call("aten.exp.default", Ref(b)))) == ["clone", "_to_copy", "exp"]


def test_a_returned_copy_of_an_intermediate_is_not_made() -> None:
    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 3)))
    graph = verify(remove_noops(s.graph(s.call("aten.clone.default", Ref(y)))))
    assert [task.op for task in graph.tasks] == ["aten.exp.default"]
    assert graph[graph.outputs[0]].role is Role.OUTPUT


@pytest.mark.parametrize("role", ["input", "parameter", "constant", "state"])
def test_a_returned_copy_of_what_belongs_to_someone_else_is_made(role: str) -> None:
    s = Sketch()
    copy = s.call("aten.clone.default", Ref(s.root(role, "x", 3)))
    assert ops(s.graph(copy)) == ["clone"]


def test_outputs_that_are_two_tensors_in_eager_stay_two() -> None:
    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 3)))
    copies = [s.call("aten.clone.default", Ref(y)) for _ in range(2)]
    assert ops(s.graph(y, *copies)) == ["exp", "clone", "clone"]

    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 3)))
    copies = [s.call("aten.clone.default", Ref(y)) for _ in range(2)]
    graph = verify(remove_noops(s.graph(*copies)))
    assert [task.op.split(".")[1] for task in graph.tasks] == ["exp", "clone"]
    assert len({graph.content(v).id for v in graph.outputs}) == 2


def test_a_returned_copy_of_a_slice_does_not_hand_out_the_whole() -> None:
    s = Sketch()
    y = s.call("aten.exp.default", Ref(s.root("input", "x", 9, 9)))
    copy = s.call("aten.clone.default", Ref(s.view(y, (1, 9), (9, 1))))
    assert ops(s.graph(copy)) == ["exp", "clone"]


def test_a_copy_that_protects_old_contents_is_made() -> None:
    s = Sketch()
    state = s.root("state", "count", 3)
    old = s.call("aten.clone.default", Ref(state))
    s.update(state, s.call("aten.add.Scalar", Ref(state), 1.0))
    graph = s.graph(s.call("aten.mul.Tensor", Ref(old), 2.0))
    assert ops(graph) == ["clone", "add", "copy_", "mul"]


def test_a_copy_that_is_written_over_is_made() -> None:
    s = Sketch()
    x = s.root("input", "x", 3)
    copy = s.call("aten.clone.default", Ref(x))
    new = s.update(copy, s.call("aten.exp.default", Ref(x)))
    assert ops(s.graph(s.call("aten.sin.default", Ref(new)))) == ["clone", "exp", "copy_", "sin"]


FLOATS = [0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan"), 1e-42, 3.4e38]
INTEGERS = [0, 1, 2, 3, 5, 8, 13, 21, 127]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether all numbers are the same, 0.0 and -0.0 told apart; one NaN is as good as another."""
    signs = torch.equal(one.signbit()[~one.isnan()], other.signbit()[~other.isnan()])
    return (
        one.dtype == other.dtype
        and signs
        and torch.equal(one.isnan(), other.isnan())
        and bool(((one == other) | one.isnan()).all())
    )


@pytest.mark.parametrize("overload", ["Tensor", "Scalar"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("number", [0, 0.0, 1, 1.0])
def test_a_neutral_number_is_dropped_where_no_bit_changes(
    overload: str, dtype: str, name: str, number: Arg
) -> None:
    op = f"aten.{name}.{overload}"
    s = Sketch()
    x = s.root("input", "x", 9, dtype=dtype)
    y = s.call(op, Ref(x), number)
    removed = ops(s.graph(s.call("aten.neg.default", Ref(y)))) == ["neg"]
    tensor = torch.tensor(INTEGERS if "int" in dtype else FLOATS).to(getattr(torch, dtype))
    assert removed == same_bits(tensor, operator(op)(tensor, number))


@pytest.mark.parametrize(("name", "given"), [("sub", -0.0), ("add", 0.0)])
def test_zero_is_not_dropped_where_it_turns_a_zero_positive(name: str, given: float) -> None:
    s = Sketch()
    y = s.call(f"aten.{name}.Tensor", Ref(s.root("input", "x", 3)), given)
    assert ops(s.graph(s.call("aten.exp.default", Ref(y)))) == [name, "exp"]


def test_concatenation_and_padding_with_nothing_are_dropped() -> None:
    s = Sketch()
    x = s.root("input", "x", 3, 4)
    y = s.call("aten.cat.default", (Ref(x),), 1)
    y = s.call("aten.constant_pad_nd.default", Ref(y), (0, 0, 0, 0), 1.0)
    y = s.call("aten.repeat.default", Ref(y), (1, 1))
    assert ops(s.graph(s.call("aten.exp.default", Ref(y)))) == ["exp"]


def test_dropout_that_drops_nothing_leaves_no_task() -> None:
    model = nn.Sequential(nn.Dropout(0.5).eval(), nn.Dropout(0.0).train(), nn.ReLU())
    assert ops(trace(model, torch.ones(3)).graph) == ["relu"]
