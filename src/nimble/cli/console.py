"""Where the command line writes, and how it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console

from nimble.errors import InputError, NimbleError

# A file or a pipe has no width; a table cut off at 80 columns cannot be read.
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)
T = TypeVar("T")


def or_exit(action: Callable[[], T]) -> T:
    """The result, or the error's message without a traceback and exit status 1."""
    try:
        return action()
    except NimbleError as error:
        err.print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


def check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: no file can be written there")
