"""Clusters from files: our short YAML, and Slurm's topology.yaml and topology.conf."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nimble.cluster.topology import (
    GPU_BANDWIDTH,
    LATENCIES_S,
    MACHINE_BANDWIDTH,
    Machine,
    Tier,
    Topology,
    check_size,
    grid,
    parse,
)
from nimble.errors import InputError

_UNITS = {"gb/s": 1e9, "gbit/s": 1e9 / 8, "gbps": 1e9 / 8, "mb/s": 1e6, "b/s": 1.0}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass
class _Node:
    """A switch (with children) or a machine (with GPUs) of a file, before domains are numbered."""

    name: str
    children: list[_Node] = field(default_factory=list)
    gpus: int = 0
    kind: str = ""
    bandwidth: float | None = None  # of its link upward


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
    try:
        if path.suffix == ".conf":
            return _build(_slurm_conf(text), {}, oversubscription, gpus_per_machine, path.name)
        read = yaml.safe_load(text)
        if isinstance(read, list) or (isinstance(read, dict) and "topology" in read):
            tree = _slurm_yaml(read)
            return _build(tree, {}, oversubscription, gpus_per_machine, path.name)
        return _ours(read, oversubscription, path.name)
    except yaml.YAMLError as error:
        raise InputError(f"cluster {source}: not YAML: {error}") from None
    except (InputError, KeyError, TypeError, ValueError) as error:
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
    known = {"shape", "oversubscription", "kinds", "tiers", "links", "tree"}
    if unknown := sorted(set(read) - known):
        raise InputError(
            f"unknown {', '.join(map(str, unknown))}; known: {', '.join(sorted(known))}"
        )
    ratio = float(read.get("oversubscription", oversubscription))
    tiers: Mapping[str, Any] = read.get("tiers", {})
    links = {str(k): quantity(v, _UNITS) for k, v in read.get("links", {}).items()}
    if "tree" in read:
        return _build(_tree(read["tree"]), {"tiers": tiers, "links": links}, ratio, 8, name)
    if "shape" not in read:
        raise InputError("neither `shape` nor `tree`")
    shape = [int(part) for part in str(read["shape"]).lower().split("x")]
    made = grid(shape, oversubscription=ratio, kinds=[str(kind) for kind in read.get("kinds", ())])
    return _adjust(made, tiers, links, ratio, name)


def quantity(value: Any, units: Mapping[str, float]) -> float:
    """A number with a unit: "100 Gbit/s", "5 us"; a bare number is in bytes/s or seconds."""
    if isinstance(value, int | float):
        return float(value)
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(\S+)\s*", str(value))
    if not found or found[2].lower() not in units:
        raise InputError(f"{value!r}: expected a number and one of {', '.join(units)}")
    return float(found[1]) * units[found[2].lower()]


def _tree(read: Any) -> _Node:
    def node(name: str, of: Any) -> _Node:
        if isinstance(of, int):
            return _Node(name, gpus=of)
        if not isinstance(of, Mapping) or not of:
            raise InputError(f"{name}: expected members, or a number of GPUs")
        if "gpus" in of:
            return _Node(name, gpus=int(of["gpus"]), kind=str(of.get("kind", "")))
        return _Node(name, [node(str(child), inner) for child, inner in of.items()])

    return node("network", read)


def _slurm_conf(text: str) -> _Node:
    """SwitchName=s0 Nodes=n[0-3] LinkSpeed=..; SwitchName=top Switches=s[0-1]."""
    switches: dict[str, list[str]] = {}
    machines: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        entries = {
            key.lower(): value
            for key, _, value in (part.partition("=") for part in line.split("#")[0].split())
        }
        if not entries:
            continue
        if "switchname" not in entries or not entries.keys() & {"nodes", "switches"}:
            raise InputError(f"line {number}: expected SwitchName= with Nodes= or Switches=")
        nodes = expand(entries.get("nodes", ""))
        machines.update(nodes)
        for switch in expand(entries["switchname"]):
            switches[switch] = nodes + expand(entries.get("switches", ""))
    return _switched(switches, machines)


def _slurm_yaml(read: Any) -> _Node:
    """The first `tree` (or `block`) topology of Slurm's topology.yaml."""
    listed = read["topology"] if isinstance(read, Mapping) else read
    for topology in listed if isinstance(listed, list) else [listed]:
        if "tree" in topology:
            switches: dict[str, list[str]] = {}
            machines: set[str] = set()
            for switch in topology["tree"]["switches"]:
                nodes = expand(str(switch.get("nodes", "")))
                machines.update(nodes)
                children = expand(str(switch.get("children", "")))
                switches[str(switch["switch"])] = nodes + children
            return _switched(switches, machines)
        if "block" in topology:
            blocks = topology["block"]["blocks"]
            made = {str(block["block"]): expand(str(block["nodes"])) for block in blocks}
            return _switched(made, {node for nodes in made.values() for node in nodes})
    raise InputError("no `tree` and no `block` topology in it")


def _switched(switches: Mapping[str, Sequence[str]], machines: set[str]) -> _Node:
    if not switches:
        raise InputError("no switches")

    def node(name: str, above: tuple[str, ...]) -> _Node:
        if name in above:
            raise InputError(f"switch {name} is above itself")
        if name in machines:
            return _Node(name)
        if name not in switches:
            raise InputError(f"switch {name} is named but not described")
        return _Node(name, [node(child, (*above, name)) for child in switches[name]])

    inner = {child for children in switches.values() for child in children}
    tops = [name for name in switches if name not in inner]
    if not tops:
        raise InputError("every switch is below another")
    return node(tops[0], ()) if len(tops) == 1 else _Node("network", [node(t, ()) for t in tops])


def expand(names: str) -> list[str]:
    """Slurm's host lists.

    >>> expand("a[0-2,07],b")
    ['a0', 'a1', 'a2', 'a07', 'b']
    """
    out: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", names):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if not found:
            out.append(part.strip())
            continue
        head, ranges, tail = found.groups()
        for piece in ranges.split(","):
            low, _, high = piece.partition("-")
            width = len(low) if low.startswith("0") else 0
            check_size(f"{names[:40]!r}", int(high or low) - int(low), 0)
            for number in range(int(low), int(high or low) + 1):
                out += [f"{head}{number:0{width}d}{rest}" for rest in expand(tail) or [""]]
    return out


def _build(
    root: _Node, ours: Mapping[str, Any], ratio: float, gpus_per_machine: int, name: str
) -> Topology:
    """Numbers the domains, machines first; a machine that hangs higher gets switches in between."""

    def height(node: _Node) -> int:
        return 1 + max(map(height, node.children)) if node.children else 0

    tall = height(root)
    if tall == 0:
        raise InputError("a cluster needs at least one switch above its machines")

    def pad(node: _Node, want: int) -> _Node:
        if not node.children and want == 0:
            return node
        if height(node) < want and not node.children:
            return _Node(f"{node.name}-switch", [pad(node, want - 1)])
        return _Node(node.name, [pad(child, want - 1) for child in node.children])

    levels: list[list[_Node]] = [[] for _ in range(tall + 1)]

    def collect(node: _Node, level: int) -> None:
        for child in node.children:
            collect(child, level - 1)
        levels[level].append(node)

    collect(pad(root, tall), tall)
    number = {id(node): i for i, node in enumerate(node for level in levels for node in level)}
    parent = [-1] * len(number)
    flat = [node for level in levels for node in level]
    for node in flat:
        for child in node.children:
            parent[number[id(child)]] = number[id(node)]
    if len({node.name for node in flat}) != len(flat):
        raise InputError("two machines or switches have the same name")
    up = [0.0] * len(flat)
    for i, node in enumerate(flat[:-1]):
        below = sum(up[number[id(child)]] for child in node.children)
        up[i] = below / ratio if node.children else MACHINE_BANDWIDTH
    names = ("machine", "rack", *(f"tier{t}" for t in range(2, tall)), "network")
    names = names[:1] + names[len(names) - tall :] if tall == 1 else names
    latencies = [LATENCIES_S[min(t, len(LATENCIES_S) - 1)] for t in range(tall + 1)]
    usual = [GPU_BANDWIDTH, *(max(up[number[id(n)]] for n in level) for level in levels[:-1])]
    made = Topology(
        tiers=tuple(map(Tier, names, latencies, usual)),
        machines=tuple(Machine(n.name, n.gpus or gpus_per_machine, n.kind) for n in levels[0]),
        parent=tuple(parent),
        capacity=tuple(up[:-1]),
        names=tuple(node.name for node in flat),
        text=name,
    )
    return _adjust(made, ours.get("tiers", {}), ours.get("links", {}), ratio, name)


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
