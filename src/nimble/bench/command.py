"""A whole bench with everything a user sees: the bar, the tables, the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from nimble.bench.busy import beside
from nimble.bench.page import page
from nimble.bench.referee import Settings, bench
from nimble.bench.report import show
from nimble.bench.result import Result


def run_bench(
    models: Sequence[str],
    settings: Settings,
    out: Console,
    progress: Console,
    json_file: Path | None = None,
    html: Path | None = None,
) -> Result:
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # Drawn only when something happens: a bar that moves by itself would disturb what is timed.
    with Progress(*columns, console=progress, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=settings.steps(len(models)))

        def report(what: str, steps: int) -> None:
            bar.update(task, advance=steps, description=escape(what) if what else None)
            bar.refresh()

        def keep(result: Result) -> None:
            if json_file is not None:
                result.save(json_file)
            if html is not None:
                html.write_text(page(result))

        try:
            result = bench(models, settings, report, keep)
        except KeyboardInterrupt:
            kept = " and ".join(str(path) for path in (json_file, html) if path is not None)
            bar.console.print(f"stopped; what was finished is in {kept}" if kept else "stopped")
            raise
    if settings.busy:
        out.print(beside(settings.busy))
    show(result, out)
    return result
