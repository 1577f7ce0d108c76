"""The main job at work: a network with branches, from stock PyTorch to a proven replay."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import nimble
from nimble import zoo
from nimble.capture.structure import flatten
from nimble.compare import Reference, one_thread, relative_error

NETWORK = "googlenet@64"


def demo(out: Console, folder: Path) -> None:
    def say(text: str) -> None:
        out.print(text, highlight=False, soft_wrap=True)

    with one_thread():
        model, args = zoo.build(NETWORK)
    say(f"[bold]1. A stock PyTorch model[/bold]: {NETWORK}, {_parameters(model):.1f} M parameters")
    start = time.perf_counter()
    engine = nimble.compile(model, args, name=NETWORK)
    took = time.perf_counter() - start
    say(f"\n[bold]2. nimble.compile(model, (x,))[/bold], {took:.1f} s\n")
    say(engine.explain())

    tensors, structure = flatten((args, {}))
    reference = Reference.of(model, tensors, structure)
    got = flatten(engine(*args))[0]
    error, own = (relative_error(r, reference.exact) for r in (got, reference.eager))
    say(
        f"\n[bold]3. The same answers[/bold]: off by {error:.1e} from float64, "
        f"eager PyTorch by {own:.1e}"
    )
    eager, replayed = _race([model, engine], args)
    say(f"   eager {eager:.2f} ms, replay {replayed:.2f} ms: {eager / replayed:.2f} x (medians)")

    folder.mkdir(parents=True, exist_ok=True)
    timeline = engine.timeline()
    trace, picture = timeline.save(folder / "run.json"), timeline.save(folder / "run.svg")
    say(f"\n[bold]4. What ran when[/bold]: {trace} (opens in Perfetto), {picture} (a picture)")

    saved = folder / "model.nimble"
    engine.save(saved)
    start = time.perf_counter()
    loaded = nimble.load(saved)
    took = time.perf_counter() - start
    same = torch.equal(loaded(*args), engine(*args))
    say(
        f"\n[bold]5. Saved and loaded[/bold] in {took:.2f} s, verified and proven again; "
        f"same bits: {'yes' if same else 'no'}"
    )


def _parameters(model: torch.nn.Module) -> float:
    return sum(p.numel() for p in model.parameters()) / 1e6


def _race(runners: list[Any], args: tuple[Any, ...]) -> list[float]:
    """Median milliseconds of each, measured in turn."""
    times: list[list[float]] = [[] for _ in runners]
    with torch.no_grad():
        for _ in range(23):
            for mine, run in zip(times, runners, strict=True):
                start = time.perf_counter()
                run(*args)
                mine.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(mine[3:]) for mine in times]
