"""Clusters from files: our short YAML, and Slurm's topology.yaml and topology.conf."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from nimble.cluster.slurm import read_conf, read_yaml
from nimble.cluster.topology import GPU_BANDWIDTH, Tier, Topology, parse
from nimble.cluster.tree import Node, build
from nimble.errors import InputError

_UNITS = {"gb/s": 1e9, "gbit/s": 1e9 / 8, "gbps": 1e9 / 8, "mb/s": 1e6, "b/s": 1.0}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def load_topology(
    source: str, *, oversubscription: float = 1.0, gpus_per_machine: int = 8
) -> Topology:
    """A cluster from "16x16x8" or a file. Slurm's files do not say how many GPUs a node has."""
    path = Path(source)
    if not path.suffix and not path.exists():
        return parse(source, oversubscription=oversubscription)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cluster {source}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cluster {source}: not a text file: {error}") from None
    try:
        if path.suffix == ".conf":
            return build(read_conf(text), oversubscription, gpus_per_machine, path.name)
        read = yaml.safe_load(text)
        if isinstance(read, list) or (isinstance(read, dict) and "topology" in read):
            return build(read_yaml(read), oversubscription, gpus_per_machine, path.name)
        return _ours(read, oversubscription, path.name)
    except yaml.YAMLError as error:
        raise InputError(f"cluster {source}: not YAML: {error}") from None
    except InputError as error:
        raise InputError(f"cluster {source}: {error}") from None


def _ours(read: Any, oversubscription: float, name: str) -> Topology:
    """
    shape: 16x16x8            # or `tree:` below
    oversubscription: 4       # of every link above the machines
    kinds: [v100, v100, k80]  # of the machines, repeated
    tiers:                    # from the inside out; any may be left out
      machine: {bandwidth: 150 GB/s, latency: 2 us}
      rack: {bandwidth: 100 Gbit/s, latency: 5 us}
      network: {bandwidth: 400 Gbit/s, latency: 10 us}
    links: {rack3: 50 Gbit/s} # single links, by the name of the domain below
    tree: {rack0: {m0: 8, m1: {gpus: 4, kind: k80}}, rack1: {m2: 8}}
    """
    if not isinstance(read, Mapping):
        raise InputError("expected `shape: 16x16x8` or a `tree:`")
    _only(read, "", ("shape", "oversubscription", "kinds", "tiers", "links", "tree"))
    ratio = _ratio(read.get("oversubscription"), oversubscription)
    tiers = {
        str(tier): _only(of, f"tier {tier}", ("bandwidth", "latency"))
        for tier, of in _only(read.get("tiers") or {}, "tiers").items()
    }
    links = {
        str(link): quantity(given, _UNITS)
        for link, given in _only(read.get("links") or {}, "links").items()
    }
    if "tree" in read:
        made = build(_tree(read["tree"]), ratio, 8, name)
    elif "shape" in read:
        kinds = read.get("kinds") or []
        if not isinstance(kinds, list):
            raise InputError(f"kinds is {kinds!r}; expected a list such as [v100, k80]")
        made = parse(str(read["shape"]), oversubscription=ratio, kinds=[str(k) for k in kinds])
    else:
        raise InputError("neither `shape` nor `tree`")
    return _adjust(made, tiers, links, ratio, name)


def _only(given: Any, what: str, known: Collection[str] | None = None) -> Mapping[Any, Any]:
    """A mapping with none but these keys."""
    if not isinstance(given, Mapping):
        raise InputError(f"{what} is {given!r}; expected a mapping")
    if known is not None and (unknown := [str(key) for key in given if key not in known]):
        where = f" of {what}" if what else ""
        raise InputError(f"unknown {', '.join(unknown)}{where}; known: {', '.join(known)}")
    return given


def _ratio(said: Any, asked: float) -> float:
    if said is None:
        return asked
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise InputError(f"oversubscription is {said!r}; expected a ratio above 0")
    if asked not in (1.0, said):
        raise InputError(f"the file says oversubscription {said:g}, and {asked:g} was asked for")
    return float(said)


def quantity(value: Any, units: Mapping[str, float]) -> float:
    """A number with a unit: "100 Gbit/s", "5 us"; a bare number is in bytes/s or seconds."""
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(\S*)\s*", str(value))
    scale = units.get(found[2].lower(), 1.0 if not found[2] else None) if found else None
    try:
        amount = float(found[1]) * scale if found and scale else -1.0
    except ValueError:
        amount = -1.0
    if not (amount >= 0 and isfinite(amount)):
        raise InputError(f"{value!r}: expected a number and one of {', '.join(units)}")
    return amount


def _tree(read: Any) -> Node:
    def node(name: str, of: Any) -> Node:
        if isinstance(of, Mapping) and "gpus" in of:
            _only(of, f"machine {name}", ("gpus", "kind"))
            return Node(name, gpus=whole(name, of["gpus"]), kind=str(of.get("kind", "")))
        if not isinstance(of, Mapping) or not of:
            return Node(name, gpus=whole(name, of))
        return Node(name, [node(str(child), inner) for child, inner in of.items()])

    def whole(name: str, gpus: Any) -> int:
        if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
            raise InputError(f"{name} is {gpus!r}; expected members, or a number of GPUs from 1 up")
        return gpus

    return node("network", _only(read, "tree"))


def _adjust(
    made: Topology,
    tiers: Mapping[str, Any],
    links: Mapping[str, float],
    ratio: float,
    name: str,
) -> Topology:
    """Bandwidths and latencies that a file gives, in place of the usual ones."""
    named = {tier.name: t for t, tier in enumerate(made.tiers)}
    if unknown := sorted(set(tiers) - set(named)):
        raise InputError(f"unknown tiers {', '.join(unknown)}; there are {', '.join(named)}")
    if unknown := sorted(set(links) - set(made.names[:-1])):
        raise InputError(f"links of unknown {', '.join(unknown)}")
    given = {
        named[key]: quantity(of["bandwidth"], _UNITS)
        for key, of in tiers.items()
        if "bandwidth" in of
    }
    up = [0.0] * len(made.parent)
    below = [0.0] * len(made.parent)
    for domain, above in enumerate(made.parent[:-1]):
        level = made.level[domain]
        usual = made.capacity[domain] if level == 0 else below[domain] / ratio
        up[domain] = links.get(made.names[domain], given.get(level + 1, usual))
        below[above] += up[domain]
    per_tier = [
        max((up[d] for d in made.domains[t - 1]), default=0.0) if t else GPU_BANDWIDTH
        for t in range(len(made.tiers))
    ]
    per_tier[0] = given.get(0, made.tiers[0].bandwidth)
    return Topology(
        tiers=tuple(
            Tier(
                tier.name,
                quantity(tiers.get(tier.name, {}).get("latency", tier.latency_s), _TIMES),
                per_tier[t],
            )
            for t, tier in enumerate(made.tiers)
        ),
        machines=made.machines,
        parent=made.parent,
        capacity=tuple(up[:-1]),
        names=made.names,
        text=name,
    )
