"""The rules of a cluster from a YAML file: quotas, reservations, drains; and outages."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import yaml

from nimble.cluster.result import Outage
from nimble.cluster.rules import Drain, Reservation, Rules
from nimble.cluster.topology import Topology
from nimble.errors import InputError


def load_rules(path: str, topology: Topology) -> tuple[Rules, tuple[Outage, ...]]:
    """Rules and outages from a YAML file.

    quotas: {vision: 64}
    reservations: [{tenant: speech, machines: [rack0], start_s: 0, end_s: 86400}]
    drains: [{machine: machine3, start_s: 3600, stop_s: 7200, end_s: 90000}]
    outages: [{machine: 5, at_s: 1000, until_s: 5000}]

    Machines by name or number; the name of a rack stands for all of its machines.
    """
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"rules {path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"rules {path}: not YAML: {error}") from None
    known = ("quotas", "reservations", "drains", "outages")
    if not isinstance(read, dict) or not set(read) <= set(known):
        raise InputError(f"rules {path}: expected a mapping with some of {', '.join(known)}")
    quotas = read.get("quotas") or {}
    for tenant, gpus in quotas.items() if isinstance(quotas, dict) else [("quotas", quotas)]:
        if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0:
            raise InputError(f"rules {path}, quota of {tenant}: expected a number of GPUs")
    places = _Places(path, topology)
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
    return Rules(quotas, reservations, drains), outages


class _Places:
    """Reads entries of a rules file; errors name the file and the entry."""

    def __init__(self, path: str, topology: Topology) -> None:
        self._path = path
        self._topology = topology
        self._domain = {name: domain for domain, name in enumerate(topology.names)}

    def entries(self, read: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        entries = read.get(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"rules {self._path}, {name}: expected a list of mappings")
        return entries

    def needed(self, entry: Mapping[str, Any], key: str) -> Any:
        if key not in entry:
            raise InputError(f"rules {self._path}: {dict(entry)} has no {key}")
        return entry[key]

    def time(self, entry: Mapping[str, Any], key: str, usual: float | None = None) -> float:
        value = entry.get(key, usual) if usual is not None else self.needed(entry, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise InputError(f"rules {self._path}: {key} is {value!r}; expected seconds from 0 up")
        return float(value)

    def machines(self, entry: Mapping[str, Any], key: str) -> tuple[int, ...]:
        asked = self.needed(entry, key)
        found: set[int] = set()
        for one in asked if isinstance(asked, list) else [asked]:
            domain = one if isinstance(one, int) else self._domain.get(str(one), -1)
            if not 0 <= domain < len(self._topology.names) - isinstance(one, int):
                raise InputError(
                    f"rules {self._path}: no machine {one!r}; they are called "
                    f"{self._topology.names[0]} to "
                    f"{self._topology.names[len(self._topology.machines) - 1]}"
                )
            found.update(range(*self._topology.span[domain]))
        return tuple(sorted(found))
