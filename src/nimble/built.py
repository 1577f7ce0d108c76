"""The torch that Nimble was built against must be the torch it runs with."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import torch

SUPPORTED = "2.13"


def check() -> ModuleType:
    """`nimble._aten`, or ImportError that says what to do if torch is not the right one."""
    installed = torch.__version__
    if not installed.startswith(f"{SUPPORTED}."):
        raise ImportError(
            f"Nimble supports torch {SUPPORTED}.x, and torch {installed} is installed. "
            f"Install the right one: pip install 'torch=={SUPPORTED}.0'"
        )
    try:
        _aten = import_module("nimble._aten")
    except ImportError as error:
        raise ImportError(
            f"nimble._aten does not load with torch {installed} ({error}). It must be compiled "
            "against the torch it runs with: pip install --force-reinstall --no-deps nimble-dl, "
            "or pip install . in its source folder"
        ) from error
    if _release(_aten.BUILT_AGAINST) != _release(installed):
        raise ImportError(
            f"Nimble was built against torch {_aten.BUILT_AGAINST}, and torch {installed} is "
            "installed. Either install the torch it was built against, or build Nimble again: "
            "pip install --force-reinstall --no-deps --no-build-isolation . in its source folder"
        )
    return _aten


def _release(version: str) -> str:
    """`2.13.0+cpu` → `2.13.0`: builds of one release share their C++ interface."""
    return version.split("+")[0]
