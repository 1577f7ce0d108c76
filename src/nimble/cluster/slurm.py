"""Slurm's topology.conf and topology.yaml → a tree of switches and machines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nimble.cluster.topology import check_size
from nimble.cluster.tree import Node
from nimble.errors import InputError


def read_conf(text: str) -> Node:
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


def read_yaml(read: Any) -> Node:
    """The first `tree` (or `block`) topology of Slurm's topology.yaml."""
    listed = read["topology"] if isinstance(read, Mapping) else read
    try:
        return _first(listed if isinstance(listed, list) else [listed])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not as Slurm's topology.yaml is: {error!r}") from None


def _first(listed: list[Any]) -> Node:
    for topology in listed:
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


def _switched(switches: Mapping[str, Sequence[str]], machines: set[str]) -> Node:
    if not switches:
        raise InputError("no switches")

    def node(name: str, above: tuple[str, ...]) -> Node:
        if name in above:
            raise InputError(f"switch {name} is above itself")
        if name in machines:
            return Node(name)
        if name not in switches:
            raise InputError(f"switch {name} is named but not described")
        return Node(name, [node(child, (*above, name)) for child in switches[name]])

    inner = {child for children in switches.values() for child in children}
    tops = [name for name in switches if name not in inner]
    if not tops:
        raise InputError("every switch is below another")
    return node(tops[0], ()) if len(tops) == 1 else Node("network", [node(t, ()) for t in tops])


def expand(names: str) -> list[str]:
    """Slurm's host lists.

    >>> expand("a[0-2,07],b")
    ['a0', 'a1', 'a2', 'a07', 'b']
    """
    out: list[str] = []
    if names.count("[") != names.count("]"):
        raise InputError(f"{names!r}: a bracket is not closed")
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", names):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if not found:
            out.append(part.strip())
            continue
        head, ranges, tail = found.groups()
        for piece in ranges.split(","):
            low, _, high = piece.strip().partition("-")
            if not low.isdigit() or not (high or low).isdigit():
                raise InputError(f"{part!r}: {piece!r} is no range of numbers such as 0-7")
            width = len(low) if low.startswith("0") else 0
            check_size(f"{names[:40]!r}", int(high or low) - int(low), 0)
            for number in range(int(low), int(high or low) + 1):
                out += [f"{head}{number:0{width}d}{rest}" for rest in expand(tail) or [""]]
    return out
