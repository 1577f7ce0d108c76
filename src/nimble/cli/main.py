"""The `nimble` command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track
from rich.table import Table

import nimble
from nimble import zoo
from nimble.bench import Settings
from nimble.bench.command import run_bench
from nimble.bench.contestants import KNOWN, NIMBLE, TRAINERS
from nimble.bench.training import OPTIMIZERS, named
from nimble.cli.check import Row, check
from nimble.cli.cluster import cluster_app
from nimble.cli.console import check_writable
from nimble.cli.console import err as _err
from nimble.cli.console import or_exit as _or_exit
from nimble.cli.console import out as _out
from nimble.cli.demo import demo as run_demo
from nimble.cli.predict import predict_command
from nimble.cli.profile import profile_command
from nimble.cli.reproduce import reproduce_app
from nimble.errors import InputError, NimbleError
from nimble.observe.timeline import check_path
from nimble.targets import check_target, make

app = typer.Typer(
    help="Schedule PyTorch models once, ahead of time, and replay them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(name="predict")(predict_command)
app.command(name="profile")(profile_command)
app.add_typer(cluster_app, name="cluster")
app.add_typer(reproduce_app, name="reproduce")

_TARGET = "a network's name (see nimble networks), module:factory or file.py:factory"
Target = Annotated[
    str,
    typer.Argument(help=_TARGET),
]
Workers = Annotated[int | None, typer.Option(help="threads per replay; default: usable cores")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nimble {nimble.__version__}, torch {torch.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="where the timeline is written")] = Path("demo"),
) -> None:
    """Show the whole way through on a network with branches."""
    run_demo(_out, folder)


@app.command()
def networks() -> None:
    """List the built-in networks. `name@224x8` sets the resolution or length, and the batch."""
    made = Table(box=None, header_style="bold")
    for column in ("network", "input", "M parameters", "G multiply-adds"):
        made.add_column(column, justify="left" if column in ("network", "input") else "right")
    for name in track(zoo.names(), "counting", console=_err, transient=True):
        parameters, multiply_adds = zoo.count(name)
        shapes = ", ".join("x".join(map(str, shape)) for shape in zoo.input_shapes(name))
        made.add_row(name, shapes, f"{parameters / 1e6:.2f}", f"{multiply_adds / 1e9:.4g}")
    _out.print(made)


@app.command()
def plan(
    model: Target,
    workers: Workers = None,
    memory_limit: Annotated[int | None, typer.Option(help="bytes the arena may take")] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="write a measured timeline: .json (Perfetto) or .svg")
    ] = None,
    graph: Annotated[bool, typer.Option("--graph", help="print the graph too")] = False,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="list the tasks, predicted and measured")
    ] = False,
) -> None:
    """Compile a model and say what was decided and why."""
    if timeline is not None:
        _or_exit(lambda: check_path(timeline))
    made = _or_exit(lambda: make(model))
    engine = _or_exit(
        lambda: nimble.compile(
            made.model,
            made.args,
            made.kwargs,
            workers=workers,
            memory_limit=memory_limit,
            name=made.name,
        )
    )
    if graph:
        from nimble.graph import show

        typer.echo(show(engine.plans[0].graph, costs=True))
    typer.echo(engine.explain(tasks=tasks))
    if timeline is not None:
        typer.echo(f"timeline written to {engine.timeline().save(timeline)}")


@app.command(name="check")
def check_command(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help=_TARGET)],
    workers: Workers = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the rows to this file")
    ] = None,
) -> None:
    """Compile models, compare them with eager PyTorch, exit with 1 if anything differs."""
    if json_file is not None:
        _or_exit(lambda: check_writable(json_file))
    rows = []
    for target in track(targets, "checking", console=_err, transient=True):
        try:
            rows.append(check(make(target), workers))
        except NimbleError as error:
            rows.append(Row(target, False, str(error).removeprefix(f"{target}: ")))
        except Exception as error:
            # The factory's or the model's own: the others are checked all the same.
            rows.append(Row(target, False, f"raised {type(error).__name__}: {error}"))
    _out.print(table(rows))
    if json_file is not None:
        json_file.write_text(json.dumps([_finite(asdict(row)) for row in rows], indent=1))
    failed = [row for row in rows if not row.ok]
    for row in failed:
        _out.print(f"[red]{row.name}[/red]: {row.why}", highlight=False, soft_wrap=True)
    typer.echo(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


@app.command(name="bench")
def bench_command(
    models: Annotated[str, typer.Option(help=f"separated by commas; each {_TARGET}")],
    against: Annotated[
        str, typer.Option(help=f"of {', '.join(KNOWN)}; or file.py:load of your own")
    ] = "eager",
    threads: Annotated[str, typer.Option(help="numbers of threads to try")] = "1,2",
    rounds: Annotated[int, typer.Option(help="how often each contestant is timed")] = 100,
    seconds: Annotated[float, typer.Option(help="stop the rounds of a model after this")] = 25,
    timeout: Annotated[float, typer.Option(help="seconds a contestant has for an answer")] = 120,
    train: Annotated[
        str | None,
        typer.Option(
            help=f"time whole training steps, with one of {', '.join(OPTIMIZERS)}; only against "
            f"{', '.join(TRAINERS)}",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, or cuda: then against eager and compile, with one thread")
    ] = "cpu",
    busy: Annotated[
        int, typer.Option(help="other processes that keep a core busy each meanwhile")
    ] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page with bars")] = None,
) -> None:
    """Time Nimble beside its peers, after comparing their answers. Exits with 1 if Nimble fails."""
    settings = _or_exit(
        lambda: Settings(
            tuple(_listed(against)),
            _numbers(threads) if device == "cpu" else (1,),
            rounds,
            seconds,
            timeout,
            busy,
            device,
        )
    )
    for path in filter(None, (json_file, html)):
        _or_exit(partial(check_writable, path))
    names = _or_exit(lambda: _named(models))
    if train is not None:
        names = _or_exit(lambda: [named(name, train) for name in names])
    result = run_bench(names, settings, _out, _err, json_file, html)
    if not all(
        any(r.counts for r in result.of(m) if r.contestant == NIMBLE) for m in result.models
    ):
        raise typer.Exit(1)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _named(text: str) -> list[str]:
    names = _listed(text)
    if not names:
        raise InputError(f"--models {text}: expected one or more, separated by commas")
    for name in names:
        check_target(name)
    return names


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in _listed(text))
    except ValueError:
        raise InputError(f"--threads {text}: expected numbers separated by commas") from None


def _finite(row: dict[str, object]) -> dict[str, object]:
    """JSON has no NaN: what was not measured is null."""
    return {k: None if isinstance(v, float) and v != v else v for k, v in row.items()}


def table(rows: Sequence[Row]) -> Table:
    """The rows for people to read."""
    made = Table(box=None, header_style="bold")
    for name in ("model", "", "error", "eager's", "tasks", "ATen", "streams", "waits", "arena KB",
                 "/ bound", "compile s"):  # fmt: skip
        made.add_column(name, justify="left" if name in ("model", "") else "right", no_wrap=True)
    for row in rows:
        if not row.tasks:  # It never came to a plan.
            made.add_row(row.name, "[red]FAILED[/red]")
            continue
        over = row.arena_bytes / row.arena_lower_bound if row.arena_lower_bound else 1.0
        made.add_row(
            row.name, "[green]ok[/green]" if row.ok else "[red]FAILED[/red]",
            f"{row.max_abs_err:.1e}", f"{row.eager_err:.1e}", str(row.tasks), str(row.fallbacks),
            str(row.streams), str(row.waits), f"{row.arena_bytes / 1000:.0f}", f"{over:.3f}",
            f"{row.compile_s:.1f}",
        )  # fmt: skip
    return made
