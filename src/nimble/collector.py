"""Python's collector of garbage, while a plan is made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 20, 1_000)
_lock = threading.Lock()
_under_way = 0
_usual = gc.get_threshold()


@contextmanager
def collected_seldom() -> Iterator[None]:
    """A plan takes a million objects to make, hardly any of them garbage: looking for it as often
    as usual took a sixth of NASNet's time, most of it among PyTorch's own objects."""
    global _under_way, _usual
    with _lock:
        if not _under_way:
            _usual = gc.get_threshold()
            if _usual[0]:  # 0: somebody has switched it off.
                gc.set_threshold(*_SELDOM)
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if not _under_way and gc.get_threshold() == _SELDOM:
                gc.set_threshold(*_usual)
