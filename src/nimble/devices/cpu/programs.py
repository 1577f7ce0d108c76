"""Chains of pointwise operators in a kernel's numbers: whole programs, and the ends of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nimble import _core
from nimble.graph import DType, Value
from nimble.lower import Values

_OPCODES = _core.opcodes()
DTYPES = {DType.FLOAT32: 0, DType.BOOL: 1, DType.INT64: 2, DType.INT32: 3, DType.BFLOAT16: 4}
"""Those that a program reads and writes, and their numbers."""
Tail = tuple[tuple[str, tuple[int | float, ...]], ...]


def instructions(
    steps: Sequence[tuple[str, Sequence[int | float]]], inputs: int, outputs: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Instructions on registers: inputs, then outputs, then the others; numbers as constants."""
    constants: dict[str, float] = {}
    """By their text: 0.0 equals -0.0."""
    place = {register: inputs + o for o, register in enumerate(outputs)}
    free = inputs + len(outputs)
    ints = [len(steps)]
    for i, (name, operands) in enumerate(steps):
        register = inputs + i
        if register not in place:
            place[register] = free
            free += 1
        numbers = []
        for operand in _completed(name, operands):
            if isinstance(operand, float):
                constants.setdefault(str(operand), operand)
                numbers.append(-1 - list(constants).index(str(operand)))
            else:
                numbers.append(operand if operand < inputs else place[operand])
        ints += [_OPCODES[name], place[register], *numbers, *[0] * (3 - len(numbers))]
    return ints, list(constants.values())


def _completed(name: str, operands: Sequence[int | float]) -> Sequence[int | float]:
    """With the defaults that the operator leaves out."""
    return (*operands, 1.0, 20.0) if name == "softplus" and len(operands) == 1 else operands


@dataclass(frozen=True, slots=True)
class End:
    """What a kernel does before it stores its result."""

    added: int | None
    clamp: tuple[float, float] | None
    tail: Tail
    """The rest, as a program; operands from 1 on are `extras`."""
    extras: tuple[int, ...]


def end_of(given: dict[str, Any], *, adds: bool = True, clamps: bool = True) -> End:
    """How a task ends, for a kernel that can add an operand and clamp without a program."""
    tail: Tail = given.get("tail", ())
    extras = tuple(ref.id for ref in given.get("operands", ()))
    added = clamp = None
    rest = tail
    if adds and rest and rest[0][0] == "add" and _is_result_and_extra(rest[0][1]):
        added = extras[max(int(o) for o in rest[0][1]) - 1]
        rest = rest[1:]
    if clamps and rest and rest[0][0] in ("relu", "clamp"):
        name, operands = rest[0]
        clamp = (0.0, float("inf")) if name == "relu" else (float(operands[1]), float(operands[2]))
        rest = rest[1:] if clamp[0] < clamp[1] else rest
    if not rest:
        return End(added, clamp, (), ())
    return End(None, None, tail, extras)


def _is_result_and_extra(operands: Sequence[int | float]) -> bool:
    return all(type(o) is int for o in operands) and sorted(map(bool, operands)) == [False, True]


def epilogue(
    graph: Values, end: End, row: Callable[[Value], tuple[int, int] | None]
) -> tuple[list[int], list[float]] | None:
    """The ints of the tail; `row` gives the strides of an extra operand by rows and inside them."""
    if not end.tail:
        return [], []
    ints = [len(end.extras)]
    for v in end.extras:
        strides = row(graph[v])
        if strides is None or graph[v].dtype not in (DType.FLOAT32, DType.BOOL):
            return None
        ints += [DTYPES[graph[v].dtype], *strides]
    inputs = 1 + len(end.extras)
    steps = []
    for i, (name, operands) in enumerate(end.tail):
        running = 0 if i == 0 else inputs + i - 1
        steps.append((name, [running if type(o) is int and o == 0 else o for o in operands]))
    code, floats = instructions(steps, inputs, [inputs + len(end.tail) - 1])
    return [*ints, *code], floats
