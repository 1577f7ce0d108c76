"""RandWire (Xie et al., 2019): stages whose wiring is a random graph, the same one every time."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from nimble.zoo.blocks import classifier, conv_norm

NODES, NEIGHBOURS, REWIRED = 32, 4, 0.75


def randwire(channels: int = 78) -> nn.Sequential:
    """The small regime of the paper."""
    return nn.Sequential(
        conv_norm(3, channels // 2, 3, 2),
        nn.Conv2d(channels // 2, channels, 3, 2, 1, bias=False),
        nn.BatchNorm2d(channels),
        RandomStage(channels, channels, seed=1),
        RandomStage(channels, 2 * channels, seed=2),
        RandomStage(2 * channels, 4 * channels, seed=3),
        nn.ReLU(),
        conv_norm(4 * channels, 1280),
        classifier(1280),
    )


def small_world(seed: int) -> list[list[int]]:
    """For every node the nodes before it that it is wired to: a ring, partly rewired at random.

    Watts and Strogatz (1998). An edge leads from the smaller node to the larger.
    """
    draw = random.Random(seed)
    near = [{(i + step) % NODES for step in (-2, -1, 1, 2)} for i in range(NODES)]
    for step in range(1, NEIGHBOURS // 2 + 1):
        for i in range(NODES):
            j = (i + step) % NODES
            if j in near[i] and draw.random() < REWIRED:
                k = draw.choice([k for k in range(NODES) if k != i and k not in near[i]])
                near[i].remove(j)
                near[j].remove(i)
                near[i].add(k)
                near[k].add(i)
    return [sorted(j for j in near[i] if j < i) for i in range(NODES)]


class RandomStage(nn.Module):
    """Nodes wired to none before them read the input; those read by none make up the output."""

    def __init__(self, inputs: int, outputs: int, seed: int) -> None:
        super().__init__()
        wiring = small_world(seed)
        read = {j for before in wiring for j in before}
        self.ends = [i for i in range(NODES) if i not in read]
        self.nodes = nn.ModuleList(
            Node(outputs, outputs, before) if before else _convolution(inputs, outputs, 2)
            for before in wiring
        )

    def forward(self, x: Tensor) -> Tensor:
        results: list[Tensor] = []
        for node in self.nodes:
            results.append(node(results) if isinstance(node, Node) else node(x))
        return _sum([results[i] for i in self.ends]) / len(self.ends)


class Node(nn.Module):
    """Adds up the results it is wired to, each times a share that is learned, and convolves."""

    def __init__(self, inputs: int, outputs: int, before: list[int]) -> None:
        super().__init__()
        self.before = before
        self.shares = nn.Parameter(torch.zeros(len(before)))
        self.convolution = _convolution(inputs, outputs, 1)

    def forward(self, results: list[Tensor]) -> Tensor:
        shares = torch.sigmoid(self.shares).unbind()
        total = _sum([results[i] * share for i, share in zip(self.before, shares, strict=True)])
        convolved: Tensor = self.convolution(total)
        return convolved


def _sum(terms: list[Tensor]) -> Tensor:
    return sum(terms[1:], terms[0])


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
    )
