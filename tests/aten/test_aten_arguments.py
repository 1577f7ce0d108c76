"""What a table is told is checked at once: an error names the op and the argument, or the slot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aten_on_table import OnTable

from nimble import _aten

aten = torch.ops.aten


@pytest.fixture
def table() -> _aten.Table:
    """Values 0, 1, 2 of four floats each."""
    table = _aten.Table(4, 4)
    for i in range(3):
        table.memory(i, torch.zeros(4))
        table.value(i, i, torch.float32, [4], [1], 0)
    return table


def ref(id: int) -> _aten.Ref:
    return _aten.Ref(id)


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "why"),
    [
        ("aten::nope", [], {}, "aten::nope is no op that torch knows"),
        ("aten::exp.nope", [ref(0)], {}, "aten::exp.nope is no op that torch knows"),
        ("aten::add.Tensor", [ref(0)], {}, "aten::add.Tensor, argument 'other' is missing"),
        ("aten::exp", [ref(0), 1], {}, "aten::exp takes 1 positional arguments, got 2"),
        ("aten::exp", [ref(0)], {"beta": 1}, "aten::exp has no argument 'beta'"),
        ("aten::exp", [ref(0)], {"self": ref(0)}, "aten::exp, argument 'self' is given twice"),
        ("aten::exp", [ref(3)], {}, "aten::exp, argument 'self': value 3 is not defined"),
        ("aten::exp", [ref(99)], {}, "aten::exp, argument 'self': value 99 is not defined"),
        ("aten::exp", ["x"], {}, "argument 'self': expected Tensor, got 'x'"),
        ("aten::exp", [None], {}, "argument 'self': expected Tensor, got None"),
        ("aten::exp", [torch.ones(4)], {}, "argument 'self': expected Tensor, got tensor"),
        ("aten::cat", [ref(0)], {}, "aten::cat, argument 'tensors': expected Tensor[], got Ref(0)"),
        ("aten::cat", [[ref(0), 1.5j, "x"]], {}, "argument 'tensors'"),
        ("aten::squeeze.dim", [ref(0), 1.5], {}, "argument 'dim': expected int, got 1.5"),
        ("aten::squeeze.dim", [ref(0), 2**70], {}, "argument 'dim': expected int, got 118"),
        ("aten::leaky_relu", [ref(0), ref(1)], {}, "'negative_slope': expected Scalar, got Ref(1)"),
        ("aten::softmax.int", [ref(0), 0, "float"], {}, "argument 'dtype': expected ScalarType?"),
        ("aten::_softmax", [ref(0), 0, 1], {}, "argument 'half_to_float': expected bool, got 1"),
        ("aten::gelu", [ref(0)], {"approximate": 3}, "argument 'approximate': expected str, got 3"),
        ("aten::bernoulli", [ref(0)], {"generator": 1}, "argument 'generator'"),
        ("aten::rand", [[4]], {"device": "toaster"}, "argument 'device': expected Device?"),
        ("aten::sum.dim_IntList", [ref(0), [0, "x"]], {}, "argument 'dim'"),
        ("aten::t_", [ref(0)], {}, "aten::t_ reshapes a tensor of the plan"),
    ],
)
def test_wrong_arguments_are_named(
    table: _aten.Table, op: str, args: list[Any], kwargs: dict[str, Any], why: str
) -> None:
    name, _, overload = op.partition(".")
    with pytest.raises(ValueError) as caught:
        table.call(name, overload, args, kwargs, [2])
    assert why in str(caught.value)


def test_wrong_results_are_named(table: _aten.Table) -> None:
    with pytest.raises(ValueError, match="aten::exp has 1 results, got 2"):
        table.call("aten::exp", "", [ref(0)], {}, [1, 2])
    with pytest.raises(ValueError, match="aten::exp: result 3 is no defined value"):
        table.call("aten::exp", "", [ref(0)], {}, [3])
    with pytest.raises(ValueError, match="aten::exp writes none of its arguments"):
        table.call("aten::exp", "", [ref(0)], {}, [])
    table.value(3, 2, torch.float32, [2, 2], [0, 1], 0)
    with pytest.raises(ValueError, match="elements that share memory"):
        table.call("aten::exp", "", [ref(0)], {}, [3])


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "why"),
    [
        ([5], [1], 0, "ends beyond the 16 bytes of its slot"),
        ([4], [1], 4, "ends beyond"),
        ([4], [2], 0, "ends beyond"),
        ([2], [2**62], 0, "ends beyond"),
        ([1], [1], 2**63, "ends beyond"),
        ([4], [1, 1], 0, "differ in length"),
        ([-1], [1], 0, "negative"),
        ([1], [-1], 0, "negative"),
        ([1], [1], 2, "no multiple of 4"),
    ],
)
def test_a_value_must_fit_in_its_slot(
    table: _aten.Table, shape: list[int], strides: list[int], offset: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        table.value(3, 0, torch.float32, shape, strides, offset)


def test_slots_and_values_are_defined_once_and_within_the_table(table: _aten.Table) -> None:
    with pytest.raises(ValueError, match="value 0 is already defined"):
        table.value(0, 0, torch.float32, [4], [1], 0)
    with pytest.raises(ValueError, match="value 4 is beyond"):
        table.value(4, 0, torch.float32, [4], [1], 0)
    with pytest.raises(ValueError, match="slot 3 is not defined"):
        table.value(3, 3, torch.float32, [4], [1], 0)
    with pytest.raises(ValueError, match="slot 0 is already defined"):
        table.storage(0, 16)
    with pytest.raises(ValueError, match="slot 4 is beyond"):
        table.memory(4, torch.zeros(1))
    with pytest.raises(ValueError, match="slot 3: no ordinary CPU tensor"):
        table.memory(3, torch.zeros(1).to_sparse())
    with pytest.raises(TypeError):
        table.memory(3, [1.0])  # type: ignore[arg-type]


def test_a_slot_without_memory_cannot_be_run(table: _aten.Table) -> None:
    table.storage(3, 16)
    with pytest.raises(ValueError, match="slot 3 is bound only while a plan replays"):
        table.run([])


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        (aten.add.Tensor, [torch.ones(2), 3], {"alpha": 2.5}),
        (aten.full.default, [[2], True], {"dtype": torch.bool, "device": torch.device("cpu")}),
        (aten.full.default, [[2], 1 + 2j], {}),
        (aten.rand.default, [[0]], {"device": "cpu", "layout": torch.strided, "pin_memory": False}),
        (aten.clone.default, [torch.ones(2, 3)], {"memory_format": torch.contiguous_format}),
        (aten.sum.dim_IntList, [torch.ones(2, 3), None], {"dtype": torch.float64}),
        (aten.upsample_nearest2d.vec, [torch.ones(1, 1, 2, 2), None, [2.0, 2.0]], {}),
        (aten.index.Tensor, [torch.ones(2, 3), [None, torch.tensor([1])]], {}),
        (aten.clamp.default, [torch.ones(2)], {"max": 0}),
        (aten.div.Tensor_mode, [torch.ones(2), 2], {"rounding_mode": "floor"}),
        (aten.histogramdd.default, [torch.ones(2, 2), [2, 2]], {"range": [0.0, 1.0, 0.0, 1.0]}),
        (aten._foreach_add.ScalarList, [[torch.ones(2), torch.ones(2)], [1, 2.5]], {}),
        (aten.rot90.default, [torch.ones(2, 3)], {"k": 1, "dims": (0, 1)}),
    ],
    ids=lambda value: str(value) if isinstance(value, torch._ops.OpOverload) else "",
)
def test_every_kind_of_argument_arrives(op: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    expected = op(*args, **kwargs)
    flat = torch.utils._pytree.tree_leaves(expected)
    got = OnTable(op, args, kwargs, expected).run()
    for a, b in zip(got, flat, strict=True):
        assert a is not None
        assert torch.equal(a, b)


def test_one_number_stands_for_a_list_of_fixed_length() -> None:
    image, expected = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2)
    (got,) = OnTable(aten.avg_pool2d.default, [image, 2], {}, expected).run()
    assert got is not None
    assert torch.equal(got, expected)


def test_a_plan_is_checked(table: _aten.Table) -> None:
    core = pytest.importorskip("nimble._core")
    tape = core.Tape(1, 0, 4)
    tape.finish()

    def plan(inputs: list[Any], specs: list[Any], outputs: list[int], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            table.plan(tape.address, core.replay_api, inputs, specs, outputs, [])

    table.storage(3, 16)
    four = (torch.float32, [4], [1])
    plan([(9, *four)], [], [], "slot 9 is not defined")
    plan([(0, *four)], [], [], "slot 0 is a memory of the plan")
    plan([(3, torch.float32, [5], [1])], [], [], "ends beyond")
    plan([], [("fresh", 3, *four, 4)], [], "ends beyond")
    plan([], [("fresh", 0, *four, 0)], [], "slot 0 has a memory")
    plan([], [("fresh", 3)], [], "field 2 is missing")
    plan([], [("input", 0)], [], "input 0 does not exist")
    plan([], [("memory", 3)], [], "slot 3 is no memory")
    plan([], [("stale", 3)], [], "of no known kind")
    plan([], [], [0], "output 0 of 0 does not exist")
    with pytest.raises(ValueError, match="PyCapsule"):
        table.plan(tape.address, 3, [], [], [], [])
    small = core.Tape(1, 0, 2)
    small.finish()
    with pytest.raises((ValueError, IndexError), match="slot"):
        table.plan(small.address, core.replay_api, [], [], [], [])
    with pytest.raises(ValueError, match="no plan yet"):
        table.replay([])
