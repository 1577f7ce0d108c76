"""The options that say what is simulated: the same for every `nimble cluster` command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from nimble.cli.console import or_exit
from nimble.cluster.network import Collective
from nimble.cluster.setup import ARRIVALS, Setup

_WHERE = "The cluster"
_WHAT = "The jobs"
_HOW = "How it goes on"


def _option(text: str, panel: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar=metavar)


def setup(
    cluster: Annotated[
        str, _option("racks x machines x GPUs, or a file: YAML, Slurm's topology", _WHERE)
    ] = "16x16x8",
    oversubscription: Annotated[
        float, _option("what could come from below over what may leave a rack", _WHERE)
    ] = 1.0,
    gpus_per_machine: Annotated[
        int, _option("where a Slurm file does not say", _WHERE)
    ] = 8,
    trace: Annotated[str, _option("a file of jobs; without one they are made up", _WHAT)] = "",
    format: Annotated[str, _option("of the trace; else found by its header", _WHAT)] = "",
    profiles: Annotated[
        str, _option("a JSON file of profiles, besides the bundled ones", _WHAT)
    ] = "",
    generate: Annotated[
        str, _option(f"arrivals of made-up jobs: {', '.join(ARRIVALS)}", _WHAT)
    ] = "poisson",
    mix: Annotated[str, _option("of made-up jobs: dally, philly", _WHAT)] = "dally",
    jobs: Annotated[int, _option("how many are made up", _WHAT)] = 1000,
    load: Annotated[
        float | None,
        _option("scale arrivals to this share of the cluster; made up: 0.8", _WHAT),
    ] = None,
    speedup: Annotated[float, _option("arrivals come so many times as fast", _WHAT)] = 1.0,
    seed: Annotated[int, _option("of everything random", _WHAT)] = 0,
    tenants: Annotated[int, _option("of made-up jobs", _WHAT)] = 1,
    checkpoint: Annotated[float, _option("seconds to write one when preempted", _WHAT)] = 0.0,
    restart: Annotated[float, _option("seconds to start again", _WHAT)] = 0.0,
    warm_up: Annotated[
        float, _option("share of the time of submissions whose jobs do not count", _WHAT)
    ] = 0.0,
    cool_down: Annotated[float, _option("the same at its end", _WHAT)] = 0.0,
    lease: Annotated[float | None, _option("seconds, for policies with leases", _HOW)] = None,
    contention: Annotated[
        bool, _option("jobs on the same link slow each other down", _HOW)
    ] = True,
    collective: Annotated[
        Collective,
        _option(f"how gradients are summed: {', '.join(Collective)}", _HOW, metavar="HOW"),
    ] = Collective.RING,
    rules: Annotated[
        str, _option("a YAML file: quotas, reservations, drains, outages", _HOW)
    ] = "",
    mtbf: Annotated[
        float, _option("mean hours between failures of a machine; 0: none fail", _HOW)
    ] = 0.0,
    repair: Annotated[float, _option("mean hours until it is back", _HOW)] = 4.0,
    checkpoint_every: Annotated[
        float,
        _option("seconds between checkpoints; what follows the last is lost in a failure; 0: none",
                _HOW),
    ] = 0.0,
    until: Annotated[float, _option("stop at this second, jobs left or not; 0: never", _HOW)] = 0.0,
    check: Annotated[
        bool, _option("check every rule of the simulator at every event (slow)", _HOW, "--check")
    ] = False,
) -> Setup:  # fmt: skip
    return Setup(**locals())


def takes_setup(command: Callable[..., None]) -> Callable[..., None]:
    """The command, called with a Setup first, as a command with all the options above."""
    own = inspect.signature(command).parameters
    shared = inspect.signature(setup).parameters
    mine = list(own.values())[1:]

    @wraps(command)
    def called(**given: Any) -> None:
        made = {name: given.pop(name) for name in shared}
        command(or_exit(lambda: setup(**made)), **given)

    hints = get_type_hints(setup, include_extras=True) | get_type_hints(
        command, include_extras=True
    )
    parameters = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*mine, *shared.values())
    ]
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called
