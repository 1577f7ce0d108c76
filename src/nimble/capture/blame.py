"""Finding the line of the user's model that an error or a task comes from."""

from __future__ import annotations

import functools
import linecache
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

import torch
from torch import fx

_NIMBLE = f"{Path(__file__).parents[1]}/"
_PYTHONS = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "scripts"))
"""Python's own files. Packages that were installed lie within, and are others'."""
_INSTALLED = ("/site-packages/", "/dist-packages/")
_OTHERS = (f"{Path(torch.__file__).parent}/", _NIMBLE)
_TRACE = str(Path(__file__).with_name("trace.py"))
_LONGEST = 160
"""Of a line's characters that are told."""


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file belongs to the user's model, not to Python, PyTorch or Nimble."""
    if filename.startswith(f"{_NIMBLE}zoo/"):
        return True
    if filename.startswith((*_OTHERS, "<")):
        return False
    return not filename.startswith(_PYTHONS) or any(part in filename for part in _INSTALLED)


def line_of_error(trace: TracebackType | None) -> str:
    """`file:line in name: code` of the innermost frame of the user's own: in the model, or where it
    was called. An empty string if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if is_users(frame.filename):
            return _told(frame.filename, frame.lineno or 0, frame.name)
    return line_of_call()


def line_of_call() -> str:
    """The same for the line from which Nimble was called."""
    return _innermost(sys._getframe(1))


def line_of_caller() -> str:
    """The same for the call under way in a trace; an empty string if PyTorch's own modules made
    it, which the user's model only holds."""
    return _innermost(sys._getframe(2), until=_TRACE)


def _innermost(frame: FrameType | None, until: str = "") -> str:
    while frame is not None and (name := frame.f_code.co_filename) != until:
        if is_users(name):
            return _told(name, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return ""


def _told(filename: str, number: int, name: str) -> str:
    line = linecache.getline(filename, number).strip()
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 3]}..."
    return f"{filename}:{number} in {name}: `{line}`"


def first_line(error: Exception) -> str:
    """What the error says, without what PyTorch appends to it."""
    return (str(error).strip().splitlines() or [""])[0]


def at_line(node: fx.Node) -> str:
    """` at file:line …` of what made a node of a trace, as far as it was noted."""
    where = (node.meta.get("custom") or {}).get("line", "")
    return f" at {where}" if where else ""
