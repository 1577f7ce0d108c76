"""The rules of a cluster from a YAML file: quotas, reservations, drains; and outages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from pathlib import Path
from typing import Any

import yaml

from nimble.cluster.result import Outage
from nimble.cluster.rules import Drain, Reservation, Rules
from nimble.cluster.topology import Topology
from nimble.errors import InputError

KNOWN = {
    "quotas": (),
    "reservations": ("tenant", "machines", "start_s", "end_s"),
    "drains": ("machine", "start_s", "stop_s", "end_s"),
    "outages": ("machine", "at_s", "until_s"),
}


def load_rules(
    path: str, topology: Topology, tenants: Collection[str] | None = None
) -> tuple[Rules, tuple[Outage, ...]]:
    """Rules and outages from a YAML file.

    quotas: {vision: 64}
    reservations: [{tenant: speech, machines: [rack0], start_s: 0, end_s: 86400}]
    drains: [{machine: machine3, start_s: 3600, stop_s: 7200, end_s: 90000}]
    outages: [{machine: 5, at_s: 1000, until_s: 5000}]

    Machines by name or number; the name of a rack stands for all of its machines. With `tenants`,
    rules for others are refused.
    """
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"rules {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"rules {path}: not YAML: {error}") from None
    try:
        return _rules(read, topology, tenants)
    except InputError as error:
        raise InputError(f"rules {path}: {error}") from None


def _rules(
    read: Any, topology: Topology, tenants: Collection[str] | None
) -> tuple[Rules, tuple[Outage, ...]]:
    if not isinstance(read, dict):
        raise InputError(f"expected a mapping with some of {', '.join(KNOWN)}")
    if unknown := [str(key) for key in read if key not in KNOWN]:
        raise InputError(f"unknown {', '.join(unknown)}; there are {', '.join(KNOWN)}")
    quotas = read.get("quotas") or {}
    for tenant, gpus in quotas.items() if isinstance(quotas, dict) else [("quotas", quotas)]:
        if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0:
            raise InputError(f"quota of {tenant}: expected a number of GPUs, and it is {gpus!r}")
    places = _Places(topology)
    reservations = tuple(
        Reservation(
            str(places.needed(entry, "tenant")), places.machines(entry, "machines"),
            places.time(entry, "start_s", 0.0), places.time(entry, "end_s", inf),
        )
        for entry in places.entries(read, "reservations")
    )  # fmt: skip
    drains = tuple(
        Drain(machine, places.time(entry, "start_s", 0.0), places.time(entry, "stop_s", inf),
              places.time(entry, "end_s", inf))
        for entry in places.entries(read, "drains")
        for machine in places.machines(entry, "machine")
    )  # fmt: skip
    outages = tuple(
        Outage(machine, places.time(entry, "at_s"), places.time(entry, "until_s"))
        for entry in places.entries(read, "outages")
        for machine in places.machines(entry, "machine")
    )
    quotas = {str(tenant): gpus for tenant, gpus in quotas.items()}
    if tenants is not None:
        for what, tenant in (
            *(("quota", tenant) for tenant in quotas),
            *(("reservation", reservation.tenant) for reservation in reservations),
        ):
            if tenant not in tenants:
                raise InputError(f"{what} for tenant {tenant!r}: {_known(tenants)}")
    return Rules(quotas, reservations, drains), outages


def _known(tenants: Collection[str]) -> str:
    named = sorted(tenant for tenant in tenants if tenant)
    if not named:
        return "no job has a tenant (--tenants 3 gives made-up jobs tenant0 to tenant2)"
    return f"the jobs' tenants are {', '.join(named[:20])}{' …' if len(named) > 20 else ''}"


class _Places:
    """Reads entries of a rules file; errors name the entry."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._domain = {name: domain for domain, name in enumerate(topology.names)}

    def entries(self, read: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        entries = read.get(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"{name}: expected a list of mappings")
        for entry in entries:
            if unknown := [str(key) for key in entry if key not in KNOWN[name]]:
                raise InputError(
                    f"{name}: unknown {', '.join(unknown)} in {entry}; "
                    f"expected {', '.join(KNOWN[name])}"
                )
        return entries

    def needed(self, entry: Mapping[str, Any], key: str) -> Any:
        if key not in entry:
            raise InputError(f"{dict(entry)} has no {key}")
        return entry[key]

    def time(self, entry: Mapping[str, Any], key: str, usual: float | None = None) -> float:
        value = entry.get(key, usual) if usual is not None else self.needed(entry, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise InputError(f"{key} is {value!r}; expected seconds from 0 up")
        return float(value)

    def machines(self, entry: Mapping[str, Any], key: str) -> tuple[int, ...]:
        asked = self.needed(entry, key)
        found: set[int] = set()
        for one in asked if isinstance(asked, list) else [asked]:
            count = len(self._topology.machines)
            numbered = isinstance(one, int) and not isinstance(one, bool) and 0 <= one < count
            domain = one if numbered else self._domain.get(str(one), -1)
            if domain < 0:
                names = self._topology.names
                raise InputError(
                    f"no machine {one!r}; they are 0 to {count - 1}, called {names[0]} to "
                    f"{names[count - 1]}, in {', '.join(names[count:][:8])}"
                )
            found.update(range(*self._topology.span[domain]))
        return tuple(sorted(found))
