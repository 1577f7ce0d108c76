"""How long the stages of compiling take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nimble.company import Company

STAGES = ("capture", "rewrite", "lower", "measure", "schedule", "bind")
Report = Callable[[str], None]


class Clock:
    """Times the stages, and tells whoever shows progress."""

    def __init__(self, report: Report) -> None:
        self.seconds: dict[str, float] = {}
        self.company = Company()
        """Who else was at work since compiling began."""
        self._report = report

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._report(stage)
        since = time.perf_counter()
        yield
        took = time.perf_counter() - since
        self.seconds[stage] = self.seconds.get(stage, 0.0) + took
