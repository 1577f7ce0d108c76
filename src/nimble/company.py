"""How busy other processes keep the cores: what is measured beside them says little."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Company:
    """Everybody else on the cores that this process may use, from now on."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._mine = time.process_time()
        self._all = _busy_seconds()

    def cores(self) -> float:
        """How many cores others have kept busy; 0 where the system does not tell."""
        took = time.perf_counter() - self._since
        others = _busy_seconds() - self._all - (time.process_time() - self._mine)
        return max(others, 0.0) / took


def _busy_seconds() -> float:
    """That the cores have been busy since the machine was started, with work of the host's other
    guests among it."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0  # Another system: nobody is known to be there.
    usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    for line in lines:
        name, *counts = line.split()
        if name in usable:
            user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, counts[:8])
            ticks += user + nice + system + irq + softirq + stolen
    return ticks / os.sysconf("SC_CLK_TCK")
