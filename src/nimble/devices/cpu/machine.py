"""Which machine this is, as far as measured times depend on it."""

from __future__ import annotations

import platform
from pathlib import Path


def this_cpu() -> str:
    """The processor's name: measured costs hold for it only."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
