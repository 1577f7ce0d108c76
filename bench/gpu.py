"""The modelled GPU beside what is published; writes docs/gpu.md, its pictures, and the constants.

`python bench/gpu.py`. It takes a few minutes and needs no GPU: nothing here is measured but how
long predictions take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from marks import rewrite
from rich.progress import track

from nimble.devices.sim import choose_for_gpu
from nimble.reproduce.figures import write_figures
from nimble.reproduce.fit import PRIORS
from nimble.reproduce.networks import Captured
from nimble.reproduce.rows import Row, Tables, networks, tables

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gpu.md"
FITTED = ROOT / "src" / "nimble" / "devices" / "sim" / "fitted.toml"
ARENAS = ("nasnet_a_mobile", "nasnet_a_large", "inception_v3", "googlenet", "randwire", "resnet50")


def main() -> None:
    write({name: capture() for name, capture in track(list(networks()), "capturing")})


def write(captured: Mapping[str, Captured]) -> None:
    found = tables(captured, print)
    FITTED.write_text("\n".join(constants_file(found, FITTED.read_text())) + "\n")
    rewrite(PAGE, "cells", cells(found))
    rewrite(PAGE, "others", others(found))
    rewrite(PAGE, "constants", constants(found))
    rewrite(PAGE, "arenas", arenas(captured))
    for path in write_figures(found, PAGE.parent):
        print(path)


def constants_file(found: Tables, before: str) -> Iterator[str]:
    """The file with these constants and errors; hosts other than the paper's stay as they are."""
    worst = abs(found.worst().error)
    fresh = {
        **{name: f"{value:.4g}" for name, value in found.constants.items()},
        "cells": str(len(found.cells(True))),
        "median": f"{found.median(True):.4f}",
        "worst": f"{worst:.4f}",
    }
    section = ""
    for line in before.splitlines():
        name = line.partition(" = ")[0]
        section = line if line.startswith("[") else section
        known = name in fresh and section in ("[constants]", "[host-paper]", "[error]")
        yield f"{name} = {fresh[name]}" if known else line


def cells(found: Tables) -> Iterator[str]:
    seen = {(row.network, row.metric): row for row in found.cells(False)}
    worst = sorted(found.cells(True), key=lambda row: -abs(row.error))[:3]
    named = ", ".join(f"{row.network} ({row.error:+.0%})" for row in worst)
    yield (
        f"Off by {found.median(True):.1%} in the median over {len(found.cells(True))} cells; the "
        f"worst are {named}. The model that saw them: {found.median(False):.1%}."
    )
    yield ""
    yield "| network | | published | predicted unseen | error | fitted too | error |"
    yield "|---|---|---|---|---|---|---|"
    for row in found.cells(True):
        fitted = seen[row.network, row.metric]
        kind = "inference" if "inference" in row.metric else "training"
        yield (
            f"| {row.network} | {kind} | {row.published:.2f} | {row.predicted:.2f} | "
            f"{row.error:+.0%} | {fitted.predicted:.2f} | {fitted.error:+.0%} |"
        )


def others(found: Tables) -> Iterator[str]:
    known = {(row.network, row.metric) for row in found.cells(True)}
    yield "| network | | published | predicted | error | unseen |"
    yield "|---|---|---|---|---|---|"
    for row in found.rows:
        if (row.network, row.metric) not in known:
            yield _other(row)


def _other(row: Row) -> str:
    digits = 0 if row.metric == "degree of concurrency" else 3
    unit = f" {row.unit}" if row.unit else ""
    return (
        f"| {row.network} | {row.metric} | {row.published:.{digits}f}{unit} | "
        f"{row.predicted:.{digits}f}{unit} | {row.error:+.0%} | {'yes' if row.held_out else ''} |"
    )


def constants(found: Tables) -> Iterator[str]:
    yield "| constant | before the fit | fitted | from |"
    yield "|---|---|---|---|"
    for name, prior in PRIORS.items():
        given = f"{prior.value:g}" + (f", a factor of {prior.factor:g}" if prior.free else ", kept")
        fitted = f"{found.constants[name]:.3g}" if prior.free else ""
        yield f"| `{name}` | {given} | {fitted} | {prior.source} |"


def arenas(captured: Mapping[str, Captured]) -> Iterator[str]:
    yield (
        "| network, on a V100 | streams | ms | arena MB | over its bound | of all intermediates "
        "| tasks | predicted within |"
    )
    yield "|---" * 8 + "|"
    for name in ARENAS:
        graph = captured[name].subject.planned
        start = time.perf_counter()
        built, prediction, _ = choose_for_gpu(graph, "v100")
        took = time.perf_counter() - start
        yield (
            f"| {name} | {len(built.streams)} | {prediction.ms:.3f} | "
            f"{built.arena_bytes / 1e6:.2f} | {built.arena_bytes / built.arena_lower_bound:.3f} | "
            f"{built.arena_bytes / built.intermediates_bytes:.1%} | {len(graph.tasks):,} | "
            f"{took:.2f} s |"
        )


if __name__ == "__main__":
    main()
