"""What a native kernel is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nimble.devices.cpu.programs import End
from nimble.graph import Task, refs
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


def product(
    kernel: str, task: Task, ints: list[int], end: End, tail: tuple[list[int], list[float]]
) -> NativeCall:
    """The call of a kernel that multiplies by weights, adds a bias and ends as `end` says."""
    operands = [*task.writes, *(v for arg in task.args[:3] for v in refs(arg))]
    operands += [end.added] if end.added is not None else []
    floats = (*(end.clamp or ()), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)
