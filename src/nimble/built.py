"""The torch and the oneDNN that Nimble was built against must be those it runs with."""

from __future__ import annotations

import ctypes
from importlib import metadata

import torch

SUPPORTED = "2.13"
ONEDNN = "onednn-cpu-gomp"
ONEDNN_VERSION = "2023.2.0"


def check() -> None:
    """Raise ImportError, saying what to do, if the installed torch is not the right one."""
    installed = torch.__version__
    if not installed.startswith(f"{SUPPORTED}."):
        raise ImportError(
            f"Nimble supports torch {SUPPORTED}.x, and torch {installed} is installed. "
            f"Install the right one: pip install 'torch=={SUPPORTED}.0'"
        )
    load_onednn()
    try:
        from nimble import _aten
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


def load_onednn() -> None:
    """Load oneDNN's library, so that `nimble._core` finds it wherever either of them lies.

    torch is imported by then: its OpenMP library bears the name that oneDNN asks for, so that
    the two share it. The symbols stay local, for other libraries may bring a oneDNN of their own.
    """
    wanted = f"Install it: pip install '{ONEDNN}=={ONEDNN_VERSION}'"
    try:
        package = metadata.distribution(ONEDNN)
    except metadata.PackageNotFoundError:
        raise ImportError(f"Nimble needs oneDNN, the package {ONEDNN}. {wanted}") from None
    if package.version != ONEDNN_VERSION:
        raise ImportError(
            f"Nimble was built against {ONEDNN} {ONEDNN_VERSION}, and {package.version} is "
            f"installed. {wanted}"
        )
    library = next((file for file in package.files or () if file.name == "libdnnl.so.3"), None)
    try:
        ctypes.CDLL(str(library.locate()) if library else "libdnnl.so.3")
    except OSError as error:
        raise ImportError(f"oneDNN's library does not load ({error}). {wanted}") from error


def _release(version: str) -> str:
    """`2.13.0+cpu` → `2.13.0`: builds of one release share their C++ interface."""
    return version.split("+")[0]
