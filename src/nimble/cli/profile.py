"""`nimble profile`: what a training step computes and communicates, as the cluster needs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nimble.bench.training import OPTIMIZERS
from nimble.cli.console import check_writable, err, or_exit, out
from nimble.cli.training import in_training
from nimble.cluster.buckets import FULL
from nimble.cluster.profile import Profile, write_profile
from nimble.devices.sim import find_gpu, gpu_names
from nimble.errors import InputError
from nimble.profiling import profile_step


def profile_command(
    model: Annotated[
        str, typer.Argument(help="a network's name (resnet50@224x32), or file.py:factory")
    ],
    gpu: Annotated[
        str, typer.Option(help=f"whose computing is predicted: {', '.join(gpu_names())}")
    ] = "v100",
    train: Annotated[str, typer.Option(help=f"one of {', '.join(OPTIMIZERS)}")] = "sgd",
    bucket_mb: Annotated[float, typer.Option(help="gradients are sent once so many are ready")] = (
        FULL / 2**20
    ),
    name: Annotated[str | None, typer.Option(help="what the profile is called")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the profile")] = None,
) -> None:
    """Write a profile from a captured training step. Bytes are exact, compute is predicted."""
    if json_file is not None:
        or_exit(partial(check_writable, json_file))
    with err.status(f"capturing a step of {model}"):
        found = or_exit(lambda: _profile(model, gpu, train, bucket_mb, name or model))
    out.print(f"[bold]{found.name}[/bold]: {found.source}", highlight=False, soft_wrap=True)
    out.print(
        f"compute {found.compute_s * 1e3:.2f} ms an iteration; all-reduce {found.bytes / 1e6:.2f} "
        f"MB in {len(found.buckets)} buckets of {_listed(found.buckets)} MB; overlap "
        f"{found.overlap:.0%} of the compute; the largest tensor has {found.skew:.0%} of the bytes",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if json_file is not None:
        write_profile(found, json_file)
        typer.echo(f"profile written to {json_file}")


def _profile(model: str, gpu: str, train: str, bucket_mb: float, name: str) -> Profile:
    if not bucket_mb > 0:
        raise InputError(f"--bucket-mb {bucket_mb}: expected more than 0")
    parts = in_training(model, train)
    return profile_step(*parts, name, find_gpu(gpu), round(bucket_mb * 2**20))


def _listed(buckets: tuple[int, ...], most: int = 8) -> str:
    shown = ", ".join(f"{size / 1e6:.1f}" for size in buckets[:most])
    return shown + (f" and {len(buckets) - most} more" if len(buckets) > most else "")
