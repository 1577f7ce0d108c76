"""What the user decides; the same for all plans of an engine."""

from __future__ import annotations

from dataclasses import dataclass

TUNE = ("fast", "full", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    workers: int
    memory_limit: int | None = None
    native_kernels: bool = True
    tune: str = "fast"
    """fast: measure the algorithms that are likely best. full: all of them. off: none, and nothing
    is remembered. Tasks and ways to cut them are timed in any case: schedules are made of that."""
    streams: int | None = None
    """Of a GPU; None: as many as are predicted to help."""
