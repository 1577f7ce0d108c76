"""A tree of names, as files have it → a topology with numbered domains."""

from __future__ import annotations

from dataclasses import dataclass, field

from nimble.cluster.topology import (
    GPU_BANDWIDTH,
    LATENCIES_S,
    MACHINE_BANDWIDTH,
    Machine,
    Tier,
    Topology,
)
from nimble.errors import InputError


@dataclass
class Node:
    """A switch (with children) or a machine (with GPUs) of a file, before domains are numbered."""

    name: str
    children: list[Node] = field(default_factory=list)
    gpus: int | None = None  # None: the file does not say
    kind: str = ""


def build(root: Node, ratio: float, gpus_per_machine: int, name: str) -> Topology:
    """Numbers the domains, machines first; a machine that hangs higher gets switches in between."""

    def height(node: Node) -> int:
        return 1 + max(map(height, node.children)) if node.children else 0

    tall = height(root)
    if tall == 0:
        raise InputError("a cluster needs at least one switch above its machines")

    def pad(node: Node, want: int) -> Node:
        if not node.children and want == 0:
            return node
        if height(node) < want and not node.children:
            return Node(f"{node.name}-switch", [pad(node, want - 1)])
        return Node(node.name, [pad(child, want - 1) for child in node.children])

    levels: list[list[Node]] = [[] for _ in range(tall + 1)]

    def collect(node: Node, level: int) -> None:
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
    return Topology(
        tiers=tuple(map(Tier, names, latencies, usual)),
        machines=tuple(
            Machine(n.name, gpus_per_machine if n.gpus is None else n.gpus, n.kind)
            for n in levels[0]
        ),
        parent=tuple(parent),
        capacity=tuple(up[:-1]),
        names=tuple(node.name for node in flat),
        text=name,
    )
