"""What was measured, kept on disk, so that the next to compile the same network need not measure.

A file holds one network on one processor, by one build of the kernels. Files are replaced as a
whole, so processes may read and write at once. `NIMBLE_CACHE` names the folder; empty: remember
nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from nimble import _core
from nimble.devices.cpu.machine import this_cpu

_MOST_FILES = 1000


def key_of(description: object) -> str:
    """A name for what is measured: changes with the network, the processor, and the libraries."""
    library = os.stat(_core.__file__)
    processor = (this_cpu(), _core.instruction_set(), _core.usable_cores())
    here = (*processor, torch.__version__, library.st_size, library.st_mtime)
    return hashlib.sha256(json.dumps([here, description]).encode()).hexdigest()


def recall(key: str) -> Any:
    """What was remembered under this name; None if nothing was, or it cannot be read."""
    path = _path(key)
    if path is None:
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None  # Not there, or damaged: it is measured and written again.


def remember(key: str, data: object) -> None:
    path = _path(key)
    if path is None:
        return
    # A folder that is full or cannot be written costs time at the next start, and nothing else.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "w") as file:
            json.dump(data, file)
        os.replace(temporary, path)
        _forget_oldest(path.parent)


def _path(key: str) -> Path | None:
    folder = os.environ.get("NIMBLE_CACHE")
    if folder == "":
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = os.path.expanduser(folder or f"{cache}/nimble")
    # A user without a home has nowhere to remember.
    return None if path.startswith("~") else Path(path) / f"{key}.json"


def _forget_oldest(folder: Path) -> None:
    files = list(folder.glob("*.json"))
    if len(files) > _MOST_FILES:
        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[: len(files) - _MOST_FILES]:
            file.unlink(missing_ok=True)
