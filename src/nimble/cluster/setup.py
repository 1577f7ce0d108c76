"""A run as one says it on the command line: what comes, where, under which policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import inf
from typing import Any, get_type_hints

from nimble.cluster.network import Collective
from nimble.cluster.parameters import Given, several
from nimble.errors import InputError

USUAL_LOAD = 0.8  # of made-up jobs
ARRIVALS = ("poisson", "diurnal", "batch")


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that a result depends on, in words and numbers."""

    # "16x16x8", or a file: our YAML, Slurm's topology.yaml or topology.conf.
    cluster: str = "16x16x8"
    oversubscription: float = 1.0
    gpus_per_machine: int = 8  # Slurm's files do not say
    # What comes: the jobs of a trace, or made up.
    trace: str = ""
    format: str = ""  # of the trace; found by its header without
    profiles: str = ""  # a file of profiles, besides those that are bundled
    generate: str = "poisson"
    mix: str = "dally"
    jobs: int = 1000
    load: float | None = None  # offered; for generated arrivals 0.8 without
    speedup: float = 1.0
    seed: int = 0
    tenants: int = 1
    checkpoint: float = 0.0  # seconds, for every job
    restart: float = 0.0
    # Shares of the time of submissions whose jobs run but do not count.
    warm_up: float = 0.0
    cool_down: float = 0.0
    # Who decides: a name, or file.py:Class; the length of its leases in seconds.
    policy: str = "dally"
    lease: float | None = None
    parameters: Given = ()  # of the policy: (name, value), ...
    # How it goes on.
    contention: bool = True
    collective: Collective = Collective.RING
    rules: str = ""  # a file: quotas, reservations, drains, outages
    mtbf: float = 0.0  # mean hours between failures of one machine; 0: none fail
    repair: float = 4.0  # mean hours until it is back
    checkpoint_every: float = 0.0  # seconds; 0: only when preempted
    until: float = 0.0  # seconds; 0: to the end
    check: bool = False

    def __post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise InputError(f"{_flag(name)} {value:g}: expected a number above 0")
        for name in _FROM_ZERO:
            if not 0 <= getattr(self, name) < inf:
                raise InputError(f"{_flag(name)} {getattr(self, name):g}: expected 0 or more")

    def as_json(self) -> dict[str, Any]:
        """What counts of it: with a trace, nothing is made up."""
        unused = (*(MADE_UP if self.trace else ("trace", "format")), "lease", "parameters")
        return {
            name: value
            for name, value in asdict(replace(self, load=self.offered)).items()
            if name not in unused and value is not None and value != ""
        }

    @property
    def called(self) -> str:
        """The policy, with the parameters that were given."""
        given = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.policy} ({given})" if given else self.policy

    @property
    def offered(self) -> float | None:
        """The load that arrivals are scaled to; None: as recorded, or all at once."""
        made_up = not self.trace and self.generate != "batch"
        return USUAL_LOAD if self.load is None and made_up else self.load


MADE_UP = ("generate", "mix", "jobs", "tenants")
_ABOVE_ZERO = (
    "oversubscription", "gpus_per_machine", "jobs", "load", "speedup", "tenants", "lease", "repair",
)  # fmt: skip
_FROM_ZERO = (
    "seed", "checkpoint", "restart", "warm_up", "cool_down", "mtbf", "checkpoint_every", "until",
)  # fmt: skip


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_OF_POLICY = "policy."


def varied(setup: Setup, asked: Iterable[str]) -> list[tuple[str, Setup]]:
    """Every combination of "name=value,value,...", with a label.

    >>> [label for label, _ in varied(Setup(), ["load=0.5,0.9", "policy=fifo,dally"])]
    ['load 0.5, fifo', 'load 0.5, dally', 'load 0.9, fifo', 'load 0.9, dally']
    """
    axes = [_axis(text) for text in asked]
    if not axes:
        raise InputError("nothing to vary; expected --vary name=value,value, such as load=0.5,0.9")
    names = [name for name, _ in axes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"--vary {', '.join(twice)} is given twice; put all values into one")
    for name, axis in axes:
        if not axis:
            raise InputError(f"--vary {name}=: no values; expected {name}=value,value")
    found = []
    for values in product(*(axis for _, axis in axes)):
        chosen = {name: value for (name, _), value in zip(axes, values, strict=True)}
        parts = [_said(name, value) for name, value in chosen.items()]
        own = {name: chosen.pop(name) for name in list(chosen) if name.startswith(_OF_POLICY)}
        parameters = tuple((name.removeprefix(_OF_POLICY), value) for name, value in own.items())
        made = replace(setup, parameters=setup.parameters + parameters, **chosen)
        found.append((", ".join(parts), made))
    return found


def _said(name: str, value: Any) -> str:
    if name in ("policy", "cluster"):
        return str(value)
    name = name.removeprefix(_OF_POLICY)
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _axis(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if equals and name.removeprefix(_OF_POLICY) != name:
        return name, several(values)
    known = [field.name for field in fields(Setup) if field.name != "parameters"]
    if not equals or name not in known:
        raise InputError(
            f"--vary {text}: expected name=value,value with a name of {', '.join(known)}, or a "
            "parameter of the policy, such as policy.lease=300,600"
        )
    kind = get_type_hints(Setup)[name]
    return name, [_value(name, kind, item.strip()) for item in values.split(",") if item.strip()]


def _value(name: str, kind: Any, text: str) -> Any:
    if kind is bool:
        said = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
        if text.lower() not in said:
            raise InputError(f"--vary {name}={text}: expected on or off")
        return said[text.lower()]
    make = float if kind == float | None else kind
    try:
        return make(text)
    except ValueError:
        raise InputError(f"--vary {name}={text}: expected {_expected(make)}") from None


def _expected(kind: Any) -> str:
    if kind is Collective:
        return " or ".join(Collective)
    return {int: "a whole number", float: "a number"}.get(kind, "text")
