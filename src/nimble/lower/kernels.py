"""What lowering asks of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nimble.graph import Role, Task, Value


class Values(Protocol):
    """Values by their ids: a graph, or the list of one that is being made."""

    def __getitem__(self, id: int, /) -> Value: ...


Supported = Callable[[Values, Task], bool]
"""Whether the device has a kernel for a `nimble.` task."""
PANEL = 16
"""Output channels that lie side by side in packed weights."""
FIXED = (Role.PARAMETER, Role.CONSTANT)
"""What is the same in every call."""
