"""A replay refuses, before it runs anything, tensors that the plan was not made for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from aten_program import Program
from torch._subclasses import FakeTensorMode
from torch.nn.utils.rnn import pad_sequence

from nimble import _aten


def doubled(like: torch.Tensor) -> Program:
    program = Program()
    x, y = program.input(like), program.output(*like.shape, dtype=like.dtype)
    program.call("add.Tensor", [x, x], y)
    return program.plan()


def refused(program: Program, *tensors: object) -> tuple[int, str]:
    with pytest.raises(_aten.Mismatch) as caught:
        program.table.replay(list(tensors))
    index, text = caught.value.args
    return index, text


def fake(tensor: torch.Tensor) -> torch.Tensor:
    return FakeTensorMode().from_tensor(tensor)


class Wrapped(torch.Tensor):
    """A subclass whose ops are Python's."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_subclass(cls, inner)  # type: ignore[return-value]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise AssertionError("a replay must not call Python")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: x.double(), "has dtype float64, expected float32"),
        (lambda x: x[:1], "has shape [1, 3], expected [2, 3]"),
        (lambda x: x.t().contiguous().t(), "has strides [1, 2], expected [3, 1]"),
        (lambda x: x.flatten(), "has shape [6], expected [2, 3]"),
        (lambda x: x.to("meta"), "is on meta, expected cpu"),
        (lambda x: x.to_sparse(), "has layout Sparse, expected strided"),
        (lambda x: torch._neg_view(x), "is a lazy negation; call resolve_neg()"),
        (fake, "is a tensor subclass that dispatches to Python"),
        (Wrapped, "is a tensor subclass that dispatches to Python"),
        (lambda x: x.numpy(), "is no tensor but <class 'numpy.ndarray'>"),
    ],
)
def test_the_reason_names_what_came_and_what_was_expected(
    change: Callable[[torch.Tensor], object], why: str
) -> None:
    program = doubled(torch.empty(2, 3))
    index, text = refused(program, change(torch.ones(2, 3)))
    assert index == 0
    assert text == why
    assert torch.equal(program(torch.ones(2, 3))[0], torch.full((2, 3), 2.0))


def test_a_conjugate_view_is_refused() -> None:
    program = doubled(torch.empty(2, dtype=torch.complex64))
    _, text = refused(program, torch.ones(2, dtype=torch.complex64).conj())
    assert text == "is a lazy conjugate; call resolve_conj()"


def test_a_tensor_inside_vmap_is_refused() -> None:
    program = doubled(torch.empty(2, 3))

    def inside(x: torch.Tensor) -> torch.Tensor:
        assert refused(program, x)[1] == "is inside a functorch transform"
        return x

    torch.vmap(inside)(torch.ones(4, 2, 3))


def test_too_few_and_too_many_tensors_are_refused() -> None:
    program = doubled(torch.empty(2))
    assert refused(program)[0] == 0
    index, text = refused(program, torch.ones(2), torch.ones(2))
    assert index == 1
    assert "expected 1 tensors, got 2" in text


def test_strides_of_single_elements_and_of_empty_tensors_do_not_count() -> None:
    program = doubled(torch.empty(1, 3))
    odd = torch.ones(3).as_strided((1, 3), (77, 1))
    assert torch.equal(program(odd)[0], torch.full((1, 3), 2.0))
    program = doubled(torch.empty(0, 3))
    assert program(torch.empty(0, 3).as_strided((0, 3), (1, 9)))[0].shape == (0, 3)


def test_a_parameter_and_a_subclass_without_python_ops_are_welcome() -> None:
    class Named(torch.Tensor):
        pass

    program = doubled(torch.empty(2))
    assert program(torch.nn.Parameter(torch.ones(2)))[0].tolist() == [2.0, 2.0]
    assert program(torch.ones(2).as_subclass(Named))[0].tolist() == [2.0, 2.0]
    assert program(pad_sequence([torch.ones(1)] * 2)[0])[0].tolist() == [2.0, 2.0]


def test_memory_that_is_written_may_be_reached_in_one_way_only() -> None:
    program = Program()
    state = torch.zeros(4)
    x = program.input(torch.empty(4), mutated=True)
    y = program.input(torch.empty(4))
    s = program.memory(state, mutated=True)
    program.call("add_.Tensor", [x, y])
    program.call("add_.Tensor", [s, y])
    program.plan()
    memory = torch.zeros(8)
    assert refused(program, memory[:4], memory[2:6]) == (
        0,
        "is written, but shares memory with input 1",
    )
    assert refused(program, memory[:4], state)[0] == 1
    assert refused(program, state, memory[:4])[0] == 0
    assert program(memory[:4], memory[4:]) == []
