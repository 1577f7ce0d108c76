"""`nimble cluster`: many jobs on many GPUs, simulated."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from nimble.cli.cluster_options import takes_setup
from nimble.cli.cluster_tables import summary, tables
from nimble.cluster.experiment import Outcome, make_policy, run
from nimble.cluster.page import page
from nimble.cluster.policies import POLICIES
from nimble.cluster.setup import Setup, varied
from nimble.cluster.story import story
from nimble.errors import InputError, NimbleError

cluster_app = typer.Typer(
    help="Simulate many jobs on many GPUs under a scheduling policy (docs/cluster.md).",
    no_args_is_help=True,
)
_out = Console(width=None if sys.stdout.isatty() else 160)
_err = Console(stderr=True)

Json = Annotated[Path | None, typer.Option("--json", help="write the figures")]
Html = Annotated[Path | None, typer.Option(help="write a page to look at")]
Processes = Annotated[int, typer.Option(help="runs at the same time")]


@cluster_app.command()
@takes_setup
def simulate(
    setup: Setup,
    policy: Annotated[str, typer.Option(help="a name, or file.py:Class of your own")] = "dally",
    story_of: Annotated[
        list[int] | None, typer.Option("--story", metavar="JOB", help="tell a job's story")
    ] = None,
    json_file: Json = None,
    html: Html = None,
) -> None:
    """Run jobs under one policy. Exits with 1 if the policy fails; what came before is kept."""
    with _told():
        _check_writable(json_file, html)
        setup = replace(setup, policy=policy)
        with _err.status(f"simulating {policy}"):
            outcome = run(setup, keep=bool(html or story_of), rates=html is not None)
        _say(outcome.notes)
        summary(outcome, _out)
        for job in story_of or ():
            assert outcome.result is not None
            _out.print("\n".join(story(outcome.result, job, dict(outcome.reasons))), markup=False,
                       highlight=False, soft_wrap=True)  # fmt: skip
        if json_file is not None:
            _write(json_file, outcome.as_json())
        _finish([outcome], html, f"{policy} on {setup.cluster}")


@cluster_app.command()
@takes_setup
def compare(
    setup: Setup,
    policies: Annotated[
        str, typer.Option(help="names or file.py:Class, separated by commas; or all")
    ] = "all",
    json_file: Json = None,
    html: Html = None,
    processes: Processes = 1,
) -> None:
    """Run the same jobs under several policies."""
    names = list(POLICIES) if policies == "all" else _listed(policies)
    _several([(name, replace(setup, policy=name)) for name in names], json_file, html, processes,
             f"{len(names)} policies on {setup.cluster}")  # fmt: skip


@cluster_app.command()
@takes_setup
def sweep(
    setup: Setup,
    vary: Annotated[
        list[str], typer.Option(help="name=value,value,... of any option; combinations of several")
    ],
    policy: Annotated[str, typer.Option(help="a name, or file.py:Class of your own")] = "dally",
    json_file: Json = None,
    html: Html = None,
    processes: Processes = 1,
) -> None:
    """Run with parameters varied: --vary load=0.5,0.7,0.9 --vary policy=fifo,dally."""
    with _told():
        cases = varied(replace(setup, policy=policy), vary)
    _several(cases, json_file, html, processes, f"varied: {'; '.join(vary)}")


def _several(
    cases: Sequence[tuple[str, Setup]],
    json_file: Path | None,
    html: Path | None,
    processes: int,
    title: str,
) -> None:
    with _told():
        _check_writable(json_file, html)
        for _, setup in cases:
            make_policy(setup.policy, setup.lease)
        outcomes = list(
            track(_outcomes(cases, html is not None, processes), "simulating", len(cases),
                  console=_err, transient=True)
        )  # fmt: skip
        _say(dict.fromkeys(note for outcome in outcomes for note in outcome.notes))
        for made in tables(outcomes, _out.width):
            _out.print(made)
        if json_file is not None:
            _write(json_file, {"runs": [{"label": o.label, **o.as_json()} for o in outcomes]})
        _finish(outcomes, html, title)


def _outcomes(
    cases: Sequence[tuple[str, Setup]], keep: bool, processes: int
) -> Iterator[Outcome]:
    if processes <= 1:
        for label, setup in cases:
            yield run(setup, label, keep=keep, rates=keep)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting = [
            pool.submit(run, setup, label, keep=keep, rates=keep) for label, setup in cases
        ]
        for one in waiting:
            yield one.result()


def _finish(outcomes: Sequence[Outcome], html: Path | None, title: str) -> None:
    """The page; then the errors, and exit status 1 if there were any."""
    if html is not None:
        html.write_text(page([outcome.shown() for outcome in outcomes], title), "utf-8")
        typer.echo(f"page written to {html}")
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        _err.print(f"[red]PolicyError[/red]: {escape(outcome.error)}", highlight=False,
                   soft_wrap=True)  # fmt: skip
    if failed:
        raise typer.Exit(1)


def _write(path: Path, figures: dict[str, object]) -> None:
    path.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", "utf-8")


def _say(notes: Sequence[str] | dict[str, None]) -> None:
    for note in notes:
        _err.print(note, markup=False, highlight=False, soft_wrap=True)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_writable(*paths: Path | None) -> None:
    for path in paths:
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise InputError(f"{path}: no file can be written there")


@contextmanager
def _told() -> Iterator[None]:
    """Errors as messages without a traceback, and exit status 1."""
    try:
        yield
    except NimbleError as error:
        _err.print(f"[red]{type(error).__name__}[/red]: {escape(str(error))}", highlight=False,
                   soft_wrap=True)  # fmt: skip
        raise typer.Exit(1) from error


