"""Runs as tables for people to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nimble.cluster.experiment import Outcome
from nimble.cluster.story import duration

Shown = Callable[[dict[str, Any]], str]


def _time(key: str) -> Shown:
    return lambda m: "-" if m[key] is None else duration(m[key])


def _percent(key: str) -> Shown:
    return lambda m: f"{100 * m[key]:.1f} %"


def _number(key: str, digits: int = 3) -> Shown:
    return lambda m: "-" if m[key] is None else f"{m[key]:.{digits}g}"


def _count(key: str) -> Shown:
    return lambda m: f"{m[key]:,}"


TIMES: tuple[tuple[str, Shown], ...] = (
    ("makespan", _time("makespan_s")),
    ("mean JCT", _time("mean_jct_s")),
    ("median", _time("median_jct_s")),
    ("p95", _time("p95_jct_s")),
    ("p99", _time("p99_jct_s")),
    ("queueing", _time("queueing_s")),
    ("comm.", _percent("comm_share")),
)
REST: tuple[tuple[str, Shown], ...] = (
    ("placements", lambda m: "/".join(f"{n:,}" for n in m["placements"].values())),
    ("preempt.", _count("preemptions")),
    ("queue", _count("peak_queue")),
    ("busy while\nsubmitting", _percent("utilisation_submissions")),
    ("busy", _percent("utilisation")),
    ("worst\nx alone", _number("max_finish_ratio")),
    ("p95\nx alone", _number("p95_finish_ratio")),
    ("Jain", lambda m: "-" if m["jain_tenants"] is None else f"{m['jain_tenants']:.3f}"),
)


def tables(outcomes: Sequence[Outcome], console: Console) -> list[Table]:
    """One table, or two where the console is too narrow for it."""
    speed: tuple[tuple[str, Shown], ...] = (("jobs/s", lambda run: f"{run['jobs_per_s']:,.0f}"),)
    whole = _table(outcomes, (*TIMES, *REST), speed)
    unbounded = console.options.update(width=10_000)
    if console.measure(whole, options=unbounded).maximum <= console.width:
        return [whole]
    return [_table(outcomes, TIMES, ()), _table(outcomes, REST, speed)]


def _table(
    outcomes: Sequence[Outcome],
    columns: Sequence[tuple[str, Shown]],
    costs: Sequence[tuple[str, Shown]],
) -> Table:
    made = Table(box=None, header_style="bold")
    made.add_column("", no_wrap=True)
    tiers = "/".join(tier[0] for tier in outcomes[0].metrics["placements"])
    for name, _ in (*columns, *costs):
        title = f"placements\n{tiers}" if name == "placements" else name
        made.add_column(title, justify="right", no_wrap=True)
    for outcome in outcomes:
        label = escape(outcome.label)
        if not outcome.metrics["complete"]:
            label = f"[red]{label}, stopped[/red]"
        cells = [shown(outcome.metrics) for _, shown in columns]
        made.add_row(label, *cells, *(shown(outcome.run) for _, shown in costs))
    return made


def _outcome(m: dict[str, Any]) -> str:
    done = f"{m['finished']:,} of {m['jobs']:,} jobs finished"
    if m["complete"]:
        return done
    return (
        f"[red]stopped[/red] after {duration(m['simulated_s'])}: {done}, {m['running']:,} ran, "
        f"{m['waiting']:,} waited, {m['to_come']:,} had not come"
    )


def summary(outcome: Outcome, console: Console) -> None:
    """One run, a line for each thing."""
    m, cost = outcome.metrics, outcome.run
    where = f"{escape(m['cluster'])} ({m['gpus']:,} GPU{'s' * (m['gpus'] > 1)})"
    console.print(
        f"[bold]{escape(outcome.label)}[/bold] on {where}: {_outcome(m)}",
        highlight=False,
        soft_wrap=True,
    )
    made = Table(box=None, show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(no_wrap=True)
    tiers = ", ".join(f"{name} {count:,}" for name, count in m["placements"].items())
    jct = f"mean {_time('mean_jct_s')(m)}, median {_time('median_jct_s')(m)}"
    shared = f"shared for {duration(m['shared_link_s'])} in all"
    came = f"{100 * m['utilisation_submissions']:.1f} % while jobs came"
    of = "" if m["complete"] else f", of the {m['finished']:,} that finished"
    to = "to the end" if m["complete"] else "until it was stopped"
    ratios = f"worst {_number('max_finish_ratio')(m)}, p95 {_number('p95_finish_ratio')(m)}"
    speed = f"{cost['jobs_per_s']:,.0f} jobs/s, {cost['events_per_s']:,.0f} events/s"
    for name, text in (
        ("makespan", _time("makespan_s")(m) if m["complete"] else "not known"),
        ("completion", f"{jct}, p95 {_time('p95_jct_s')(m)}, p99 {_time('p99_jct_s')(m)}{of}"),
        ("queueing", f"{_time('queueing_s')(m)} a job, at most {m['peak_queue']:,} jobs waiting"),
        ("communication", f"{100 * m['comm_share']:.1f} % of the time with GPUs"),
        ("placements", f"{tiers}; {m['preemptions']:,} preemptions"),
        ("links", f"{shared}; jobs were slowed for {duration(m['contended_s'])}"),
        ("GPUs busy", f"{came}, {100 * m['utilisation']:.1f} % {to}"),
        ("x time alone", f"{ratios}; Jain's index by tenant {_number('jain_tenants')(m)}"),
        ("simulated in", f"{cost['wall_s']:.2f} s: {speed}, {cost['peak_mb']:.0f} MB"),
    ):
        made.add_row(name, text)
        if name == "placements" and m["machine_failures"]:
            lost = f"jobs went back to a checkpoint {m['failures']:,} times"
            made.add_row("failures", f"{m['machine_failures']:,} of machines; {lost}")
    console.print(made)
