"""A table of Nimble beside some peers, each at its better number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from nimble.bench import Result, Settings
from nimble.bench.command import run_bench


def raced(models: Sequence[str], settings: Settings, out: Path) -> Result:
    """Measure, with what a user sees on the way; the JSON goes to `out`, a page beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    return run_bench(models, settings, console, console, out, out.with_suffix(".html"))


def versus(result: Result, peers: Mapping[str, str], names: Mapping[str, str]) -> Iterator[str]:
    """A row a network. `peers` are contestants and what to call them, `names` the networks'."""
    heads = [f"{peer} | threads | {peer} / Nimble" for peer in peers.values()]
    yield f"| network | Nimble | threads | {' | '.join(heads)} |"
    yield "|---" * (3 + 3 * len(peers)) + "|"
    for model in result.models:
        best = {row.contestant: row for row in result.rows if row.model == model and row.counts}
        nimble = best.get("nimble")
        cells = [f"{nimble.median_ms:.3f}", f"{nimble.threads}"] if nimble else ["-", "-"]
        for name in peers:
            row = best.get(name)
            cells += [f"{row.median_ms:.3f}", f"{row.threads}"] if row else ["-", "-"]
            ratio = "-"
            if row is not None and row.ratio_low is not None:
                ratio = f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
                ratio = f"**{ratio}**" if row.ratio_low < 1 else ratio
            cells.append(ratio)
        yield f"| {names.get(model, model)} | {' | '.join(cells)} |"
