"""A progress bar for long work, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def stages(
    what: str, names: Sequence[str], times: int, show: bool | None
) -> Iterator[Callable[[str, str], None]]:
    """Yields `report(plan, stage)`; `show` None means only where standard error is a terminal."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield lambda plan, stage: None
        return
    # Megabytes of modules, and those of who serves without a terminal stay out of memory.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"compiling {what}", total=len(names) * times)

        def report(plan: str, stage: str) -> None:
            bar.update(task, advance=1, description=f"{what} ({plan}): {stage}")

        yield report
