"""A lowered task as the call of a native kernel: its operands and numbers, in the kernel's order.

native/kernels/README.md says what each kernel takes.
"""

from __future__ import annotations

from nimble.devices.cpu.calls import (
    attention,
    convolutions,
    images,
    matrices,
    moves,
    norms,
    pointwise,
    reductions,
    training,
)
from nimble.devices.cpu.calls.call import Make, NativeCall
from nimble.graph import Task
from nimble.lower import Values

__all__ = ["NativeCall", "native_call", "supported"]

_CALLS: dict[str, Make] = {
    **attention.CALLS,
    **convolutions.CALLS,
    **images.CALLS,
    **matrices.CALLS,
    **moves.CALLS,
    **norms.CALLS,
    **pointwise.CALLS,
    **reductions.CALLS,
    **training.CALLS,
}


def supported(values: Values, task: Task) -> bool:
    return native_call(values, task) is not None


def native_call(graph: Values, task: Task) -> NativeCall | None:
    """The call that computes a `nimble.` task, or None if no kernel can."""
    make = _CALLS.get(task.op)
    return make(graph, task, dict(task.kwargs)) if make is not None else None
