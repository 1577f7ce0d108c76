"""Nimble: deep-learning programs scheduled once, ahead of time, proven, and replayed.

Names are imported when they are asked for: `nimble cluster` starts without PyTorch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nimble.api import compile, compile_step, load
    from nimble.engine import Engine
    from nimble.errors import NimbleError
    from nimble.schedule import Schedule, prove, schedule
    from nimble.train import Step

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
_HOMES = {
    "Engine": "nimble.engine",
    "NimbleError": "nimble.errors",
    "Schedule": "nimble.schedule",
    "Step": "nimble.train",
    "compile": "nimble.api",
    "compile_step": "nimble.api",
    "load": "nimble.api",
    "prove": "nimble.schedule",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    if name == "_aten":  # Whoever needs it asks here first: it loads only with the right torch.
        return import_module("nimble.built").check()
    if not name.startswith("_"):  # nimble.errors, nimble.cluster, ...
        try:
            return import_module(f"nimble.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"nimble.{name}":
                raise
    raise AttributeError(f"module 'nimble' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`nimble.schedule` is the function, also once the package of that name was imported."""

    @property
    def schedule(self) -> Any:
        return import_module("nimble.schedule").schedule

    @schedule.setter
    def schedule(self, package: ModuleType) -> None:
        """Importing `nimble.schedule` sets it; nobody else may."""
        if not isinstance(package, ModuleType):
            raise AttributeError("nimble.schedule cannot be replaced")


sys.modules[__name__].__class__ = _Package
