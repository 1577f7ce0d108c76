"""Runs one native kernel on tensors; and programs of pointwise operations for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nimble import _core

OPS = _core.opcodes()
DTYPES = {torch.float32: 0, torch.bool: 1, torch.int64: 2, torch.int32: 3, torch.bfloat16: 4}


def run(
    kernel: str, tensors: Sequence[Tensor], ints: Sequence[int], floats: Sequence[float] = ()
) -> None:
    """One call with each tensor in a slot of its own; the same tensor twice is the same slot."""
    slots = {t.data_ptr(): i for i, t in reversed(list(enumerate(tensors)))}
    operands = [(slots[t.data_ptr()], 0) for t in tensors]
    tape = _core.Tape(streams=1, tasks=1, slots=max(len(tensors), 1))
    tape.native(0, 0, kernel, operands, list(ints), list(floats))
    tape.finish()
    for address, slot in slots.items():
        tape.set_slot(slot, address)
    tape.replay()


def couples(packed: Tensor) -> Tensor:
    """Packed weights […][k][16] in bfloat16: two of k side by side."""
    return packed.unflatten(-2, (-1, 2)).transpose(-1, -2).to(torch.bfloat16).contiguous()


def program(*steps: tuple[str, int, tuple[int, ...]]) -> list[int]:
    """The ints of instructions (operation, destination, operands); -1 - i is constant i."""
    ints = [len(steps)]
    for name, destination, operands in steps:
        ints += [OPS[name], destination, *operands, *[0] * (3 - len(operands))]
    return ints


def pointwise(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    code: list[int],
    floats: Sequence[float] = (),
) -> None:
    """`pointwise.float32` over the shape of the first output; inputs broadcast."""
    shape = outputs[0].shape
    tensors = [*outputs, *(t.expand(shape) for t in inputs)]
    ints = [len(outputs), len(inputs), len(shape), *shape]
    for tensor in tensors:
        ints += [DTYPES[tensor.dtype], *tensor.stride()]
    run("pointwise.float32", tensors, ints + code, floats)
