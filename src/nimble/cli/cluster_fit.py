"""`nimble cluster fit`: the step-time model against published measurements, errors included."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from nimble.cli.console import check_writable, err, or_exit, out
from nimble.cluster.measured.gavel import GavelFit, fit_gavel, read_gavel
from nimble.cluster.measured.pollux import Steps, read_pollux
from nimble.cluster.measured.profiles import pollux_profiles
from nimble.cluster.measured.splits import Verdict, judge
from nimble.cluster.measured.step_time import SIMULATED, Fabric, fit_fabric
from nimble.cluster.profile import Profile
from nimble.errors import InputError


def fit_command(
    pollux: Annotated[
        Path | None, typer.Option(help="a folder of <model>/placements.csv and scalability.csv")
    ] = None,
    gavel: Annotated[Path | None, typer.Option(help="Gavel's simulation_throughputs.json")] = None,
    profiles: Annotated[
        Path | None, typer.Option(help="write the fitted profiles to this file")
    ] = None,
) -> None:
    """Fit the step-time model to measurements, and say how far it is off on unseen models."""
    if pollux is None and gavel is None:
        or_exit(_nothing)
    if profiles is not None:
        or_exit(partial(check_writable, profiles))
    made: list[Profile] = []
    if pollux is not None:
        models = or_exit(lambda: read_pollux(pollux))
        with err.status("fitting every split of Pollux's models"):
            verdict = or_exit(lambda: judge(models))
            fabric, plain = fit_fabric(models), fit_fabric(models, SIMULATED)
        _show_pollux(models, verdict, fabric, plain)
        made += pollux_profiles(models, fabric)
    if gavel is not None:
        measured, dropped = or_exit(lambda: read_gavel(gavel))
        found = fit_gavel(measured, dropped)
        _show_gavel(found)
        made += found.profiles
    if profiles is not None:
        text = ",\n".join(f" {json.dumps(profile.as_dict())}" for profile in made)
        profiles.write_text(f"[\n{text}\n]\n")
        typer.echo(f"{len(made)} profiles written to {profiles}")


def _nothing() -> None:
    raise InputError("nothing to fit: give --pollux FOLDER, --gavel FILE or both")


def _show_pollux(models: list[Steps], verdict: Verdict, fabric: Fabric, plain: Fabric) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("fitted on", "step time", "simulator's 3", "constant", "sync time"):
        table.add_column(column, justify="left" if column == "fitted on" else "right")
    for split in verdict.splits:
        table.add_row(
            ", ".join(split.fitted), f"{split.error:.1%}", f"{split.simulated_error:.1%}",
            f"{split.constant_error:.1%}", f"{split.sync_error:.1%}",
        )  # fmt: skip
    table.add_row(
        "median", f"{verdict.error:.1%}", f"{verdict.simulated_error:.1%}",
        f"{verdict.constant_error:.1%}", f"{verdict.sync_error:.1%}", style="bold",
    )  # fmt: skip
    out.print(
        f"Pollux: {sum(map(len, models)):,} steps across machines; median errors on the models "
        "that were not fitted"
    )
    out.print(table)
    within = sum(split.error <= 0.2 for split in verdict.splits)
    worst, error = verdict.worst
    largest = max(split.error for split in verdict.splits)
    lines = [
        f"within 20 % in {within} of {len(verdict.splits)} splits, {largest:.1%} at most",
        f"worst model {worst}, {error:.1%}",
        "by model: " + ", ".join(f"{m} {e:.1%}" for m, e in verdict.by_model().items()),
        f"fitted to all: {_fabric(fabric)}",
        f"with the simulator's parameters only: {_fabric(plain, short=True)}",
    ]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)


def _fabric(fabric: Fabric, short: bool = False) -> str:
    text = (
        f"{fabric.bandwidth / 1e9:.2f} GB/s a machine, {fabric.latency_s * 1e6:.0f} µs a message, "
        f"overlap {fabric.overlap:.0%}"
    )
    if short:
        return text
    return text + (
        f"; a further GPU in the machine slows computing by {fabric.crowding:.1%}, communication "
        f"grows with the GPUs in a machine to the power {fabric.sharing:.2f}, with the machines to "
        f"{fabric.spread:.2f}, and is {fabric.pair:.2f} times as slow between two machines"
    )


def _show_gavel(found: GavelFit) -> None:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.overlap.items())
    out.print(
        f"Gavel: {found.inside / 1e9:.1f} GB/s inside a machine, {found.across / 1e9:.2f} GB/s "
        f"between machines; overlap {shares}; median error {found.error:.1%} (fitted, not "
        f"held out); {found.dropped} pairs dropped, in which spreading out was faster",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
