"""Nimble: deep-learning programs scheduled once, ahead of time, proven, and replayed."""

from nimble import built

built.check()

from nimble.api import compile, compile_step, load  # noqa: E402
from nimble.engine import Engine  # noqa: E402
from nimble.errors import NimbleError  # noqa: E402
from nimble.schedule import Schedule, prove, schedule  # noqa: E402
from nimble.train import Step  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Engine",
    "NimbleError",
    "Schedule",
    "Step",
    "compile",
    "compile_step",
    "load",
    "prove",
    "schedule",
]
