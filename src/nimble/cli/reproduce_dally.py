"""`nimble reproduce dally`: Dally beside its peers, with what we lose printed as lost."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from nimble.cli.console import check_writable, err, or_exit, out
from nimble.cluster.optimum import gaps
from nimble.cluster.policies import POLICIES
from nimble.cluster.reproduce import ALONE, FREE, KNOWING, MEASURES, PUBLISHED, reproduce

HEADS = {
    "makespan_s": "makespan",
    "mean_jct_s": "mean JCT",
    "p99_jct_s": "p99 JCT",
    "comm_s": "communication",
}


def dally_command(
    seeds: Annotated[int, typer.Option(help="runs with different jobs", min=2)] = 10,
    workers: Annotated[int, typer.Option(help="processes; 0: usable cores")] = 0,
    cases: Annotated[int, typer.Option(help="tiny cases compared with the optimum")] = 100,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures")] = None,
) -> None:
    """Dally against its peers on its own mix of 500 jobs, with our parameters stated."""
    if json_file is not None:
        or_exit(partial(check_writable, json_file))
    count = workers or len(os.sched_getaffinity(0))
    with Progress(console=err, transient=True) as progress:
        bar = progress.add_task("simulating", total=None)
        found = reproduce(
            seeds,
            workers=count,
            on_done=lambda done, of: progress.update(bar, completed=done, total=of),
        )
    found["gap_to_optimum"] = {
        name: {"median": middle, "worst": worst}
        for name, (middle, worst) in gaps(POLICIES, cases).items()
    }
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    _print(found)


def _print(found: dict[str, Any]) -> None:
    p = found["parameters"]
    racks, machines, gpus = p["shape"]
    out.print(
        f"{p['jobs']} jobs of Dally's mix on {racks} racks x {machines} machines x {gpus} GPUs; "
        f"congested: machine links of {p['congested_link'] * 8 / 1e9:g} Gb/s, racks oversubscribed "
        f"{p['congested_ratio']:g}:1; uncongested: {p['link'] * 8 / 1e9:g} Gb/s, {p['ratio']:g}:1; "
        f"Poisson at an offered load of {p['light']:g} (light) and {p['heavy']:g} (heavy); "
        f"checkpoint {p['checkpoint_s']:g} s, restart "
        f"{p['restart_s']:g} s; {found['seeds']} seeds.\n"
        f"Published, at best and against consolidating schedulers: makespan "
        f"{-PUBLISHED['makespan_s']:.0%}, mean JCT {-PUBLISHED['mean_jct_s']:.0%}, communication "
        f"{-PUBLISHED['comm_s']:.0%}.\n"
        "Each cell: what Dally takes relative to that policy (-20% is 20 % less), and the 95 % "
        "interval over seeds; LOSS where it takes more and the interval is clear of zero.",
        soft_wrap=True,
    )
    for scene in found["scenes"]:
        out.print(_table(scene))
    out.print(_plus_table(found["scenes"]))
    shown = Table(title="Tiny cases: mean JCT above the optimum", box=None, header_style="bold")
    for head in ("policy", "median", "worst"):
        shown.add_column(head, justify="left" if head == "policy" else "right")
    for name, gap in found["gap_to_optimum"].items():
        shown.add_row(name, f"{gap['median']:.1%}", f"{gap['worst']:.1%}")
    out.print(shown)


def _table(scene: dict[str, Any]) -> Table:
    own, alone = scene["means"]["dally"], scene["means"][ALONE]
    title = (
        f"{scene['words']}: Dally's makespan {own['makespan_s'] / 3600:.1f} h, mean JCT "
        f"{own['mean_jct_s'] / 3600:.1f} h, p99 {own['p99_jct_s'] / 3600:.1f} h, communication "
        f"{own['comm_s'] / 3600:.0f} h. No policy is below {alone['mean_jct_s'] / 3600:.1f} h of "
        f"mean JCT and {alone['comm_s'] / 3600:.0f} h of communication: every job at once, alone"
    )
    shown = Table(title=title, box=None, header_style="bold", title_justify="left")
    shown.add_column("Dally against")
    for measure in MEASURES:
        shown.add_column(HEADS[measure], justify="right")
    for name in (*FREE, *KNOWING):
        if name == KNOWING[0]:
            shown.add_row("knowing the work left beforehand:", *[""] * len(MEASURES))
        if name in scene["dally_takes_less"]:
            less = scene["dally_takes_less"][name]
            shown.add_row(name, *(_cell(less[measure]) for measure in MEASURES))
    return shown


def _plus_table(scenes: list[dict[str, Any]]) -> Table:
    shown = Table(title="dally+ beside Dally", box=None, header_style="bold", title_justify="left")
    shown.add_column("")
    for head in ("mean JCT", "at best", "p99 JCT", "communication"):
        shown.add_column(head, justify="right")
    for scene in scenes:
        if "dally_plus_takes_less" in scene:
            less, means = scene["dally_plus_takes_less"], scene["means"]
            best = means[ALONE]["mean_jct_s"] / means["dally"]["mean_jct_s"] - 1
            cells = [_cell(less[key]) for key in ("mean_jct_s", "p99_jct_s", "comm_s")]
            shown.add_row(scene["words"], cells[0], f"{best:+.1%}", *cells[1:])
    return shown


def _cell(less: dict[str, float]) -> str:
    lost = " LOSS" if less["high"] < 0 else ""
    return f"{-less['less']:+.1%} [{-less['high']:+.1%}, {-less['low']:+.1%}]{lost}"
