"""Finding the line of the user's model that an error or a task comes from."""

from __future__ import annotations

import functools
import linecache
import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType

import torch
from torch import fx

_OURS = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file belongs to the user's model, not to PyTorch or Nimble."""
    inside_zoo = f"{_OURS[1]}zoo/"
    if filename.startswith(inside_zoo):
        return True
    return not filename.startswith(_OURS) and not filename.startswith("<")


def line_of_error(trace: TracebackType | None) -> str:
    """`file:line in name: code` of the innermost frame of the user's own, or an empty string."""
    for frame in reversed(traceback.extract_tb(trace)):
        if is_users(frame.filename):
            return f"{frame.filename}:{frame.lineno} in {frame.name}: `{frame.line}`"
    return ""


def first_line(error: Exception) -> str:
    """What the error says, without what PyTorch appends to it."""
    return (str(error).strip().splitlines() or [""])[0]


def at_line(node: fx.Node) -> str:
    """` at file:line …` of what made a node of a trace, as far as it was noted."""
    where = (node.meta.get("custom") or {}).get("line", "")
    return f" at {where}" if where else ""


def line_of_caller() -> str:
    """The same for the call under way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            line = linecache.getline(name, frame.f_lineno).strip()
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}: `{line}`"
        frame = frame.f_back
    return ""
