"""What a native kernel is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nimble import _core
from nimble.devices.cpu.programs import End
from nimble.graph import Arg, DType, Ref, Task, Value, refs
from nimble.lower import Values

Given = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NativeCall:
    """Operands are values, results first."""

    kernel: str
    operands: tuple[int, ...]
    ints: tuple[int, ...]
    floats: tuple[float, ...] = ()


Make = Callable[[Values, Task, Given], NativeCall | None]
"""The call that computes a task, or None if no kernel can."""


def elements(x: Value) -> tuple[int, str]:
    """How many numbers of x a kernel that multiplies takes at a time, and what its name ends in.
    Of bfloat16 two that lie side by side are one element, and strides are counted in those; 0 where
    the machine cannot multiply them."""
    if x.dtype is DType.FLOAT32:
        return 1, "float32"
    together = 2 if x.dtype is DType.BFLOAT16 and _core.multiplies_bfloat16() else 0
    return together, "bfloat16"


def in_line(graph: Values, *args: Arg) -> bool:
    """Whether the elements of these lie side by side along their last dimension."""
    values = (graph[arg.id] for arg in args if isinstance(arg, Ref))
    return all(value.numel == 1 or value.strides[-1] == 1 for value in values)


def product(
    kernel: str, task: Task, ints: list[int], end: End, tail: tuple[list[int], list[float]]
) -> NativeCall:
    """The call of a kernel that multiplies by weights, adds a bias and ends as `end` says."""
    operands = [*task.writes, *(v for arg in task.args[:3] for v in refs(arg))]
    operands += [end.added] if end.added is not None else []
    floats = (*(end.clamp or ()), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)
