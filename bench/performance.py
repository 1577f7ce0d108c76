"""Runs the standard set and writes its tables into docs/performance.md and README.md. `make bench`.

`python bench/performance.py --from out.json` writes them from figures measured before, and
`--models resnet50 --keep out.json` measures some networks anew; the others stay as in that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from bars import bars
from marks import rewrite
from rich.console import Console

from nimble.bench import Network, Result, Row, Settings
from nimble.bench.command import run_bench
from nimble.bench.contestants import NIMBLE
from nimble.bench.page import page as bench_page

ROOT = Path(__file__).parents[1]
MODELS = [
    "mobilenet_v2@32",
    "efficientnet_b0@32",
    "mlp",
    "lstm",
    "mobilenet_v2",
    "efficientnet_b0",
    "nasnet_a_mobile",
    "darts",
    "amoebanet",
    "googlenet",
    "inception_v3",
    "resnet50",
    "densenet121",
    "bert_tiny",
    "bert_base",
    "vit_tiny",
    "gpt2_step",
]
PEERS = ["eager", "torchscript", "compile", "onnxruntime", "openvino"]
"""Not AOTInductor, whose kernels are those of torch.compile, nor TVM without hours of tuning."""
SECONDS = 45
"""For the rounds of a network: the largest take seconds a round."""
TIMEOUT = 900
"""Seconds; Inductor takes minutes for the largest networks."""


def main(
    figures: Annotated[
        Path | None, typer.Option("--from", help="the JSON of an earlier bench")
    ] = None,
    out: Annotated[Path, typer.Option(help="where the JSON of this bench goes")] = Path(
        "build/bench.json"
    ),
    models: Annotated[str, typer.Option(help="the set")] = ",".join(MODELS),
    against: Annotated[str, typer.Option(help="the peers")] = ",".join(PEERS),
    keep: Annotated[
        Path | None, typer.Option(help="the JSON of an earlier bench; its other networks stay")
    ] = None,
) -> None:
    """Measure the standard set, or read it, and rewrite the tables."""
    earlier = Result.load(keep) if keep is not None else None
    if figures is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        settings = Settings(tuple(against.split(",")), seconds=SECONDS, timeout=TIMEOUT)
        page = out.with_suffix(".html")
        result = run_bench(models.split(","), settings, Console(), Console(stderr=True), out, page)
        if earlier is not None:
            result = joined(earlier, result)
            result.save(out)
            page.write_text(bench_page(result))
    else:
        result = Result.load(figures)
    rewrite(ROOT / "README.md", "performance", overview(result))
    rewrite(ROOT / "docs" / "performance.md", "performance", everything(result))


def joined(earlier: Result, later: Result) -> Result:
    """All networks of both, in the earlier order; where both have one, the later's."""
    models = dict.fromkeys((*earlier.models, *later.models))
    source = {model: later if model in later.models else earlier for model in models}
    rows = (row for model in models for row in source[model].rows if row.model == model)
    networks = (source[model].network(model) for model in models)
    return replace(later, rows=tuple(rows), networks=tuple(n for n in networks if n is not None))


def overview(result: Result) -> Iterator[str]:
    """A row a network: milliseconds, the fastest in bold."""
    names = list(dict.fromkeys(row.contestant for row in result.rows))
    yield (
        f"{where(result)} Median milliseconds, each contestant at its better number of threads; a "
        "dash: it could not run the network, [docs/performance.md](docs/performance.md) says why. "
        "The limit is what PyTorch's fastest matrix product would take for its arithmetic; kernels "
        "that beat that product, and Winograd's convolutions, go below it."
    )
    yield ""
    yield f"| network | {' | '.join(names)} | limit | best peer / Nimble |"
    yield "|---" * (len(names) + 3) + "|"
    for model in result.models:
        rows = {row.contestant: row for row in result.of(model)}
        fastest = min((r.median_ms for r in rows.values() if r.median_ms), default=None)
        cells = [_median(rows[name], fastest) for name in names]
        limit, best = result.network(model), _best_peer(rows)
        yield (
            f"| {model} | {' | '.join(cells)} | {_ms(limit.limit_ms) if limit else '-'} | {best} |"
        )


def everything(result: Result) -> Iterator[str]:
    """For each network its limit and all settings of all contestants."""
    yield where(result)
    yield ""
    yield from losses(result)
    yield ""
    yield from bars(result)
    for model in result.models:
        yield f"\n## {model}"
        network = result.network(model)
        if network is not None:
            yield limit(network)
        yield ""
        yield (
            "| contestant | threads | median ms | min | p99 | spread | / Nimble (95 %) | / limit "
            "| compile s | first answer ms | peak MB | error |"
        )
        yield "|---" * 12 + "|"
        rows = [row for row in result.rows if row.model == model]
        yield from (full(row) for row in rows if row.ok)
        failed = [row for row in rows if not row.ok]
        if failed:
            yield ""
        for row in failed:
            yield f"- {row.contestant} with {row.threads}: {row.reason}"
        for row in rows:
            if row.counts and row.scheduling is not None:
                yield ""
                yield (
                    f"Scheduling overhead of {row.contestant} with {row.threads}: {row.scheduling}."
                )


def losses(result: Result) -> Iterator[str]:
    """Where a peer is faster, or may be: the interval of its ratio begins below 1."""
    found = [
        f"{row.contestant} on {row.model} ({row.ratio:.2f}, {row.ratio_low:.2f} to "
        f"{row.ratio_high:.2f})"
        for row in result.rows
        if row.counts and row.contestant != NIMBLE and row.ratio_low is not None
        and row.ratio_low < 1
    ]  # fmt: skip
    if found:
        yield "A peer wins, or may win, where the interval of its ratio begins below 1:"
        yield ""
        yield from (f"- {each}" for each in found)
    else:
        yield "No peer was faster on any of these networks."


def where(result: Result) -> str:
    machine = result.machine
    return (
        f"Measured by `nimble bench` on {machine['cpu']}, {machine['cores']} cores, "
        f"torch {machine['torch']}, Python {machine['python']}."
    )


def limit(network: Network) -> str:
    return (
        f"Limit {_ms(network.limit_ms)} ms: {network.flops / 1e9:.3g} GFLOP in "
        f"{_ms(network.compute_ms)} ms, {network.bytes / 1e6:.3g} MB in "
        f"{_ms(network.memory_ms)} ms."
    )


def full(row: Row) -> str:
    bold = "**" if row.counts else ""
    ratio = "" if row.ratio is None else (
        f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
    )  # fmt: skip
    return (
        f"| {bold}{row.contestant}{bold} | {row.threads} | {bold}{_ms(row.median_ms)}{bold} "
        f"| {_ms(row.min_ms)} | {_ms(row.p99_ms)} | {100 * (row.spread or 0):.0f} % | {ratio} "
        f"| {row.of_limit or 0:.1f} | {row.compile_s or 0:.1f} | {row.first_ms or 0:.0f} "
        f"| {row.peak_mb or 0:.0f} | {row.error or 0:.0e} |"
    )


def _median(row: Row, fastest: float | None) -> str:
    if row.median_ms is None:
        return "-"
    return f"**{_ms(row.median_ms)}**" if row.median_ms == fastest else _ms(row.median_ms)


def _best_peer(rows: dict[str, Row]) -> str:
    peers = [r for name, r in rows.items() if name != NIMBLE and r.ratio is not None]
    best = min(peers, key=lambda row: row.ratio_low or 0.0, default=None)
    if best is None:
        return "-"
    return f"{best.ratio:.2f} ({best.ratio_low:.2f} to {best.ratio_high:.2f})"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


if __name__ == "__main__":
    typer.run(main)
