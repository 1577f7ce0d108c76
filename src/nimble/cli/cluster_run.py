"""`nimble cluster simulate`, `compare` and `sweep`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import track

from nimble.cli.cluster_options import takes_setup
from nimble.cli.cluster_tables import summary, tables
from nimble.cli.console import check_writable, err, or_exit, out
from nimble.cluster.experiment import Outcome, make_policy, run
from nimble.cluster.page import page
from nimble.cluster.parameters import Given, parse, shared
from nimble.cluster.policies import POLICIES
from nimble.cluster.setup import Setup, varied
from nimble.cluster.story import story
from nimble.errors import InputError

Policy = Annotated[
    str, typer.Option(help=f"one of {', '.join(POLICIES)}; or file.py:Class of your own")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="a parameter of the policy: --set lease=300"),
]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures")]
Html = Annotated[Path | None, typer.Option(help="write a page to look at")]
Processes = Annotated[int, typer.Option(help="runs at the same time", min=1)]


@takes_setup
def simulate(
    setup: Setup,
    policy: Policy = "dally",
    parameters: Set = None,
    story_of: Annotated[
        list[int] | None, typer.Option("--story", metavar="JOB", help="tell a job's story")
    ] = None,
    json_file: Json = None,
    html: Html = None,
) -> None:
    """Run jobs under one policy. Exits with 1 if the policy fails; what came before is kept."""
    or_exit(
        lambda: _one(
            replace(setup, policy=policy, parameters=_given(parameters)), story_of or [],
            json_file, html,
        )
    )  # fmt: skip


@takes_setup
def compare(
    setup: Setup,
    policies: Annotated[
        str, typer.Option(help="names or file.py:Class, separated by commas; or all")
    ] = "all",
    parameters: Set = None,
    json_file: Json = None,
    html: Html = None,
    processes: Processes = 1,
) -> None:
    """Run the same jobs under several policies. Exits with 1 if one of them fails.

    A parameter that is set (--set) goes to the policies that have it.
    """
    names = list(POLICIES) if policies == "all" else _listed(policies)
    own = or_exit(lambda: shared(_some(names, policies), _given(parameters)))
    cases = [(name, replace(setup, policy=name, parameters=own[name])) for name in names]
    title = f"{len(names)} policies on {setup.cluster}"
    or_exit(lambda: _several(cases, json_file, html, processes, title))


@takes_setup
def sweep(
    setup: Setup,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,VALUE",
            help="any option, or a parameter of the policy: policy.lease=300,600; combinations of "
            "several",
        ),
    ],
    policy: Policy = "dally",
    parameters: Set = None,
    json_file: Json = None,
    html: Html = None,
    processes: Processes = 1,
) -> None:
    """Run with parameters varied: --vary load=0.5,0.7,0.9 --vary policy=fifo,dally."""
    cases = or_exit(
        lambda: varied(replace(setup, policy=policy, parameters=_given(parameters)), vary)
    )
    title = f"{'; '.join(vary)} on {setup.cluster}"
    or_exit(lambda: _several(cases, json_file, html, processes, title))


def _one(setup: Setup, stories: Sequence[int], json_file: Path | None, html: Path | None) -> None:
    _check(json_file, html)
    with err.status(f"simulating {setup.called}"):
        outcome = run(setup, keep=bool(html or stories), rates=html is not None)
    _say([outcome])
    summary(outcome, out)
    for job in stories:
        assert outcome.result is not None
        lines = story(outcome.result, job, dict(outcome.reasons))
        out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        _write(json_file, outcome.as_json())
    _finish([outcome], html, f"{setup.called} on {setup.cluster}")


def _several(
    cases: Sequence[tuple[str, Setup]],
    json_file: Path | None,
    html: Path | None,
    processes: int,
    title: str,
) -> None:
    _check(json_file, html)
    for _, setup in cases:
        make_policy(setup)  # A wrong name is said before anything is run.
    running = _outcomes(cases, html is not None, processes)
    outcomes = list(track(running, "simulating", len(cases), console=err, transient=True))
    _say(outcomes)
    for made in tables(outcomes, out):
        out.print(made)
    if json_file is not None:
        _write(json_file, {"runs": [{"label": o.label, **o.as_json()} for o in outcomes]})
    _finish(outcomes, html, title)


def _outcomes(cases: Sequence[tuple[str, Setup]], keep: bool, processes: int) -> Iterator[Outcome]:
    if processes <= 1:
        for label, setup in cases:
            yield run(setup, label, keep=keep, rates=keep)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        asked = [pool.submit(run, setup, label, keep=keep, rates=keep) for label, setup in cases]
        for one in asked:
            yield one.result()


def _finish(outcomes: Sequence[Outcome], html: Path | None, title: str) -> None:
    """The page; then the errors, and exit status 1 if there were any."""
    if html is not None:
        html.write_text(page([outcome.shown() for outcome in outcomes], title), "utf-8")
        typer.echo(f"page written to {html}")
    failed = [outcome for outcome in outcomes if outcome.error]
    for one in failed:
        told = f"[red]{one.fault}[/red]: {escape(one.error)}"
        err.print(told, highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _write(path: Path, figures: dict[str, object]) -> None:
    path.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", "utf-8")


def _say(outcomes: Sequence[Outcome]) -> None:
    """What was read of the traces, and what else there is to say, each once."""
    read = [one.report.text() for one in outcomes if one.report is not None]
    for note in dict.fromkeys([*read, *(note for one in outcomes for note in one.notes)]):
        err.print(note, markup=False, highlight=False, soft_wrap=True)


def _some(names: list[str], said: str) -> list[str]:
    if not names:
        raise InputError(f"--policies {said}: expected names separated by commas, or all")
    return names


def _given(texts: Sequence[str] | None) -> Given:
    return tuple(map(parse, texts or ()))


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            check_writable(path)
