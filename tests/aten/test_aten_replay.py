"""Replaying a plan: its inputs are bound without a copy, its outputs belong to the caller."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from aten_program import Program

from nimble import _aten


def affine(streams: int = 1) -> tuple[Program, torch.nn.Parameter]:
    """relu(x + weight) for four floats."""
    program = Program()
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0, -4.0]))
    x = program.input(torch.empty(4))
    w, total, y = program.memory(weight), program.scratch(4), program.output(4)
    program.call("add.Tensor", [x, w], total)
    program.call("relu", [total], y)
    return program.plan(streams=streams), weight


@pytest.mark.parametrize("streams", [1, 2])
def test_a_replay_computes_what_eager_does(streams: int) -> None:
    program, weight = affine(streams)
    for _ in range(3):
        x = torch.randn(4)
        assert torch.equal(program(x)[0], torch.relu(x + weight))


def test_outputs_are_ordinary_tensors_that_later_replays_leave_alone() -> None:
    program, weight = affine()
    x = torch.randn(4)
    first = program(x)[0]
    expected = torch.relu(x + weight)
    second = program(torch.randn(4))[0]
    assert torch.equal(first, expected)
    assert first.data_ptr() != second.data_ptr()
    assert not first.requires_grad
    assert not first.is_inference()
    assert first._version == 0
    first.resize_(100).zero_()


def test_outputs_are_inference_tensors_in_inference_mode_as_in_eager() -> None:
    program, _ = affine()
    with torch.inference_mode():
        assert program(torch.randn(4))[0].is_inference()
    assert not program(torch.randn(4))[0].is_inference()


def test_a_replay_does_not_keep_the_callers_tensors_alive() -> None:
    program, _ = affine()
    memory = np.zeros(4, dtype=np.float32)
    freed = weakref.ref(memory)
    program(torch.from_numpy(memory))
    del memory
    gc.collect()
    assert freed() is None


def test_one_tensor_may_be_passed_twice_where_it_is_only_read() -> None:
    program = Program()
    x, y = program.input(torch.empty(3)), program.input(torch.empty(3))
    program.call("mul.Tensor", [x, y], program.output(3))
    program.plan()
    same = torch.tensor([1.0, 2.0, 3.0])
    assert program(same, same)[0].tolist() == [1.0, 4.0, 9.0]


def test_an_output_that_is_an_input_is_the_very_same_object() -> None:
    program = Program()
    program.input(torch.empty(2, 3))
    program.specs += [("input", 0), ("input_view", 0, [3], [1], 12)]
    program.plan(outputs=[0, 1, 0, 1])
    x = torch.randn(2, 3, requires_grad=True)
    first, row, again, same_row = program(x)
    assert first is x
    assert again is x
    assert row is same_row
    assert row._base is x
    assert row.grad_fn is not None
    assert torch.equal(row, x[1])


def test_a_view_of_an_input_counts_from_the_input_not_from_its_storage() -> None:
    program = Program()
    program.input(torch.empty(3))
    program.specs.append(("input_view", 0, [2], [1], 4))
    program.plan()
    assert torch.equal(program(torch.arange(10.0)[5:8])[0], torch.tensor([6.0, 7.0]))


def test_a_state_is_handed_out_itself_or_as_a_view() -> None:
    program = Program()
    state = torch.zeros(2, 2)
    s = program.memory(state, mutated=True)
    program.call("add_.Tensor", [s, 1])
    program.specs += [("memory", 0), ("memory_view", 0, [2], [2], 4)]
    program.plan()
    whole, column = program()
    assert whole is state
    assert column._base is state
    assert torch.equal(state, torch.ones(2, 2))
    assert state._version == 1


def test_two_outputs_of_one_slot_share_memory_and_version_as_views_do() -> None:
    program = Program()
    x, y = program.input(torch.empty(4)), program.output(4)
    program.call("neg", [x], y)
    program.specs.append(("fresh", y.id, torch.float32, [2, 2], [2, 1], 0))
    flat, square = program.plan()(torch.arange(4.0))
    square += 1
    assert torch.equal(flat, torch.tensor([1.0, 0.0, -1.0, -2.0]))
    assert flat._version == square._version == 1


def test_a_mutated_input_is_written_in_place_and_its_version_says_so() -> None:
    program = Program()
    x = program.input(torch.empty(3), mutated=True)
    program.call("mul_.Tensor", [x, 2.0])
    program.specs.append(("input", 0))
    program.plan()
    given = torch.tensor([1.0, 2.0, 3.0])
    assert program(given)[0] is given
    assert given.tolist() == [2.0, 4.0, 6.0]
    assert given._version == 1
    with pytest.raises(_aten.Mismatch, match="inference tensor"):
        program(inference_ones())


def inference_ones() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)


def test_empty_and_zero_dimensional_tensors_replay() -> None:
    program = Program()
    x, e = program.input(torch.empty(())), program.input(torch.empty(0, 3))
    y, z = program.output(), program.output(0, 3)
    program.call("exp", [x], y)
    program.call("exp", [e], z)
    one, none = program.plan()(torch.zeros(()), torch.empty(0, 3))
    assert one.item() == 1.0
    assert none.shape == (0, 3)


def test_nan_passes_through() -> None:
    program, _ = affine()
    assert program(torch.full((4,), float("nan")))[0].isnan().all()


def test_a_parameter_can_be_replaced_between_replays() -> None:
    program, _ = affine()
    program.table.memory(1, torch.full((4,), 10.0))
    gc.collect()
    assert torch.equal(program(torch.zeros(4))[0], torch.full((4,), 10.0))
    with pytest.raises(ValueError, match="16 bytes"):
        program.table.memory(1, torch.zeros(5))


def test_a_parameters_bytes_outlive_its_data_being_swapped() -> None:
    program, weight = affine()
    before = weight.detach().clone()
    weight.data = torch.zeros(4)
    gc.collect()
    x = torch.randn(4)
    assert torch.equal(program(x)[0], torch.relu(x + before))


def test_a_kernel_that_fails_leaves_the_plan_usable() -> None:
    program = Program()
    table, index = torch.arange(4.0), program.input(torch.empty(2, dtype=torch.int64))
    rows, y = program.memory(table), program.output(2)
    program.call("index_select", [rows, 0, index], y)
    program.plan()
    with pytest.raises(IndexError, match="out of range") as caught:
        program(torch.tensor([0, 9]))
    assert "Exception raised from" not in str(caught.value)
    assert program(torch.tensor([0, 3]))[0].tolist() == [0.0, 3.0]


def test_threads_may_call_one_plan_at_the_same_time() -> None:
    program, weight = affine(streams=2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(50):
            x = torch.full((4,), float(seed * 100 + i))
            if not torch.equal(program(x)[0], torch.relu(x + weight.detach())):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_kernel_warns_about_becomes_a_python_warning() -> None:
    program = Program()
    z, y = program.input(torch.empty(2, dtype=torch.complex64)), program.output(2)
    program.call("_to_copy", [z], y, dtype=torch.float32)
    program.plan()
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        program(torch.ones(2, dtype=torch.complex64))


def test_a_custom_op_written_in_python_takes_part() -> None:
    @torch.library.custom_op("nimble_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        if x.max() > 100:
            raise KeyError("too large")
        return x * 2

    program = Program()
    x, y, z = program.input(torch.empty(4)), program.output(4), program.output(4)
    for source, target in ((x, y), (y, z)):
        program.calls.append(
            program.table.call("nimble_test::twice", "", [source], {}, [target.id])
        )
    program.plan(streams=2)
    assert torch.equal(program(torch.ones(4))[1], torch.full((4,), 4.0))
    with pytest.raises(KeyError, match="too large"):
        program(torch.full((4,), 60.0))
    assert torch.equal(program(torch.ones(4))[1], torch.full((4,), 4.0))
