"""Where the command line writes, and how it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from nimble.errors import InputError, NimbleError

# A file or a pipe has no width; a table cut off at 80 columns cannot be read.
# No emoji: file.py:factory is a name.
out = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
err = Console(stderr=True, emoji=False)
T = TypeVar("T")


def or_exit(action: Callable[[], T]) -> T:
    """The result, or the error's message without a traceback and exit status 1."""
    try:
        return action()
    except NimbleError as error:
        kind, text = type(error).__name__, escape(str(error))
        err.print(f"[red]{kind}[/red]: {text}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


def check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: no file can be written there")


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Say what is being done: in a line that changes on a terminal, elsewhere in a line each."""
    if not err.is_terminal:
        yield lambda said: err.print(said, highlight=False, soft_wrap=True)
        return
    with err.status("") as status:
        yield status.update
