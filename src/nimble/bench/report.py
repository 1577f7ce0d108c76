"""A bench for people to read in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from nimble.bench.contestants import NIMBLE
from nimble.bench.result import Network, Result, Row
from nimble.bench.verdict import verdict

_COLUMNS = ("contestant", "threads", "median ms", "min", "p99", "spread", "/ Nimble", "95 %",
            "/ limit", "compile s", "first answer ms", "peak MB", "error")  # fmt: skip


def show(result: Result, out: Console) -> None:
    for model in result.models:
        out.print()
        out.print(f"[bold]{model}[/bold]  {_limit(result.network(model))}", highlight=False)
        rows = result.of(model)
        if any(row.ok for row in rows):
            out.print(_table([row for row in rows if row.ok]))
            out.print(f"  [bold]{_plain(verdict(rows))}[/bold]", highlight=False, soft_wrap=True)
        for line in _notes(rows, result):
            out.print(line, highlight=False, soft_wrap=True)


def _limit(network: Network | None) -> str:
    if network is None:
        return ""
    return (
        f"limit {network.limit_ms:.3g} ms: arithmetic {network.flops / 1e9:.3g} GFLOP in "
        f"{network.compute_ms:.3g} ms, bytes {network.bytes / 1e6:.3g} MB in "
        f"{network.memory_ms:.3g} ms"
    )


def _table(rows: list[Row]) -> Table:
    made = Table(box=None, header_style="bold")
    for name in _COLUMNS:
        made.add_column(name, justify="left" if name == "contestant" else "right", no_wrap=True)
    for row in rows:
        style = "bold green" if row.contestant == NIMBLE else ""
        made.add_row(*_cells(row), style=style)
    return made


def _cells(row: Row) -> Iterator[str]:
    yield row.contestant
    yield str(row.threads)
    yield _number(row.median_ms, 3)
    yield _number(row.min_ms, 3)
    yield _number(row.p99_ms, 3)
    yield f"{100 * row.spread:.0f} %" if row.spread is not None else ""
    yield f"{row.ratio:.2f} x" if row.ratio is not None else ""
    yield f"{row.ratio_low:.2f} to {row.ratio_high:.2f}" if row.ratio is not None else ""
    yield f"{row.of_limit:.1f} x" if row.of_limit is not None else ""
    yield _number(row.compile_s, 1)
    yield _number(row.first_ms, 0)
    yield _number(row.peak_mb, 0)
    yield f"{row.error:.0e}" if row.error is not None else ""


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _notes(rows: list[Row], result: Result) -> Iterator[str]:
    for row in rows:
        if row.scheduling is not None:
            yield f"  {row.contestant}'s scheduling overhead: {row.scheduling}"
    failed: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        if not row.ok and row.model == rows[0].model:
            failed.setdefault((row.contestant, row.reason), []).append(str(row.threads))
    for (name, reason), threads in failed.items():
        yield f"  [red]{_plain(name)}[/red] with {' and '.join(threads)}: {_plain(reason)}"


def _plain(text: str) -> str:
    """Brackets in a message are not markup."""
    return text.replace("[", r"\[")
