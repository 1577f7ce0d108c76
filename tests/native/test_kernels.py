"""Arithmetic gives PyTorch's results bit for bit; what all native kernels have in common."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nimble import _core

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45]
OPS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "relu": torch.relu,
}
COPY = [1, 1, 4, 1, 1, 0]
"""The ints of a copy of four bytes without gaps."""


def tape_for(kernel: str, operands: list[tuple[int, int]], ints: list[int]) -> _core.Tape:
    tape = _core.Tape(streams=1, tasks=1, slots=len(operands))
    tape.native(0, 0, kernel, operands, ints, [])
    tape.finish()
    return tape


def program(op: str, inputs: int, count: int) -> list[int]:
    """The ints of one operation on tensors without gaps."""
    operands = [0, 1] * (inputs + 1)
    return [1, inputs, 1, count, *operands, 1, _core.opcodes()[op], inputs, 0, inputs - 1, 0]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32)


def operands_for(op: str, count: int) -> list[torch.Tensor]:
    """Every pair of special values, then random ones."""
    generator = torch.Generator().manual_seed(count)
    special = torch.tensor(SPECIAL)
    a, b = special.repeat_interleave(len(special)), special.repeat(len(special))
    random = torch.randn(2, count, generator=generator)
    a, b = torch.cat([a, random[0]])[:count], torch.cat([b, random[1]])[:count]
    return [a] if op == "relu" else [a, b]


@pytest.mark.parametrize("count", [0, 1, 7, 64, 100, 1003])
@pytest.mark.parametrize("op", OPS)
def test_arithmetic(op: str, count: int) -> None:
    inputs = operands_for(op, count)
    out = torch.full_like(inputs[0], 7.0)
    tensors = [out, *inputs]
    ints = program(op, len(inputs), count)
    tape = tape_for("pointwise.float32", [(slot, 0) for slot in range(len(tensors))], ints)
    for slot, tensor in enumerate(tensors):
        tape.set_slot(slot, tensor.data_ptr())
    tape.replay()
    assert torch.equal(bits(out), bits(OPS[op](*inputs)))


@pytest.mark.parametrize("op", OPS)
def test_the_output_may_be_an_input(op: str) -> None:
    inputs = operands_for(op, 333)
    expected = OPS[op](*inputs)
    operands = [(0, 0), (0, 0), (1, 0)][: len(inputs) + 1]
    tape = tape_for("pointwise.float32", operands, program(op, len(inputs), 333))
    for slot, tensor in enumerate(inputs):
        tape.set_slot(slot, tensor.data_ptr())
    if op == "relu":
        tape.set_slot(1, 0)
    tape.replay()
    assert torch.equal(bits(inputs[0]), bits(expected))


def test_copy_takes_bytes_at_offsets_from_slots_that_move() -> None:
    source, target = torch.arange(16, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8)
    tape = tape_for("copy_strided", [(0, 3), (1, 5)], COPY)
    tape.set_slot(0, target.data_ptr())
    tape.set_slot(1, source.data_ptr())
    tape.replay()
    assert target.tolist() == [0, 0, 0, 5, 6, 7, 8] + [0] * 9
    tape.set_slot(1, source.data_ptr() + 4)
    tape.replay()
    assert target.tolist() == [0, 0, 0, 9, 10, 11, 12] + [0] * 9


@pytest.mark.parametrize(
    ("kernel", "operands", "ints", "floats", "message"),
    [
        ("no.such", [(0, 0)], [1], [], "there is no native kernel 'no.such'; there are"),
        ("copy_strided", [(0, 0)] * 3, COPY, [], "'copy_strided' takes 2 operands, not 3"),
        ("copy_strided", [(0, 0)] * 2, COPY[:-1], [], "more than 5 ints: start is missing"),
        ("copy_strided", [(0, 0)] * 2, [*COPY, 2], [], "'copy_strided' takes 6 ints, not 7"),
        ("copy_strided", [(0, 0)] * 2, COPY, [0.5], "'copy_strided' takes 0 floats, not 1"),
        ("copy_strided", [(0, 0), (2, 0)], COPY, [], "operand 1 of task 0 is at slot 2, offset 0"),
        ("copy_strided", [(0, -4), (0, 0)], COPY, [], "operand 0 .* is at slot 0, offset -4"),
        ("copy_strided", [(0, 0)] * 2, [1, 1, -1, 1, 1, 0], [], "-1, which is not between 0 and"),
    ],
)
def test_calls_that_do_not_fit_are_refused(
    kernel: str, operands: list[tuple[int, int]], ints: list[int], floats: list[float], message: str
) -> None:
    tape = _core.Tape(streams=1, tasks=1, slots=2)
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        tape.native(0, 0, kernel, operands, ints, floats)


def test_a_slot_in_use_must_have_an_address() -> None:
    tape = tape_for("copy_strided", [(0, 0), (1, 0)], [1, 1, 0, 1, 1, 0])
    tape.set_slot(0, 0)
    with pytest.raises(RuntimeError, match="slot 1 is used by a native kernel and has no address"):
        tape.replay()
    tape.set_slot(1, 0)
    tape.replay()


@pytest.mark.skipif("NIMBLE_ISA" in os.environ, reason="is itself started by this test")
@pytest.mark.parametrize("isa", _core.instruction_sets()[:-1])
def test_lesser_instruction_sets_pass_the_same_tests(isa: str) -> None:
    here = Path(__file__).parent
    environment = os.environ | {"NIMBLE_ISA": isa}
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(here)]
    command += ["--ignore", str(here / "test_process.py"), "--ignore", str(here / "test_tape.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def kernels_with(isa: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from nimble import _core; print(_core.instruction_set())"]
    environment = os.environ | {"NIMBLE_ISA": isa}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("isa", _core.instruction_sets())
def test_an_instruction_set_can_be_chosen(isa: str) -> None:
    assert kernels_with(isa).stdout.strip() == isa


def test_an_instruction_set_of_another_machine_is_refused() -> None:
    here = ", ".join(_core.instruction_sets())
    said = kernels_with("neon").stderr
    assert f"NIMBLE_ISA is 'neon', which is no instruction set; expected one of {here}" in said
    for isa in {"avx2", "avx512"} - set(_core.instruction_sets()):
        assert "this machine does not have; expected one of" in kernels_with(isa).stderr


def test_what_was_measured_with_other_instructions_is_not_taken() -> None:
    program = "from nimble.devices.cpu.memo import key_of; print(key_of('a network'))"
    keys = set()
    for isa in _core.instruction_sets():
        environment = os.environ | {"NIMBLE_ISA": isa}
        command = [sys.executable, "-c", program]
        keys.add(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert len(keys) == len(_core.instruction_sets())
