"""A neighbour that keeps cores busy while contestants are timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BURN = "import os, sys\nme = os.getppid()\nwhile os.getppid() == me:\n    sum(range(10**6))"
"""Ends with whoever started it, however that ends."""


def beside(count: int) -> str:
    """For people to read."""
    return f"timed beside {count} busy {'process' if count == 1 else 'processes'}"


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many other processes, each of which would take a whole core, run meanwhile."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            running.append(
                subprocess.Popen([sys.executable, "-S", "-c", _BURN], start_new_session=True)
            )
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
