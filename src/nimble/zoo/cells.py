"""Networks for ImageNet made of cells that a search has found: DARTS and AmoebaNet.

DARTS: Liu et al., 2019. AmoebaNet-A: Real et al., 2019, in the frame of the former.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nimble.zoo.blocks import classifier


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Pairs of (operation, state); each two add up to the next state.

    States 0 and 1 are the results of the two cells before. `joined` states make up the result.
    """

    pairs: tuple[tuple[str, int], ...]
    joined: tuple[int, ...]


DARTS = (
    CellPlan(
        (
            ("sep 3", 0), ("sep 3", 1), ("sep 3", 0), ("sep 3", 1),
            ("sep 3", 1), ("skip", 0), ("skip", 0), ("dilated 3", 2),
        ),
        (2, 3, 4, 5),
    ),
    CellPlan(
        (
            ("max 3", 0), ("max 3", 1), ("skip", 2), ("max 3", 1),
            ("max 3", 0), ("skip", 2), ("skip", 2), ("max 3", 1),
        ),
        (2, 3, 4, 5),
    ),
)  # fmt: skip
AMOEBANET = (
    CellPlan(
        (
            ("average 3", 0), ("max 3", 1), ("sep 3", 0), ("sep 5", 2), ("sep 3", 0),
            ("average 3", 3), ("sep 3", 1), ("skip", 1), ("skip", 0), ("average 3", 1),
        ),
        (4, 5, 6),
    ),
    CellPlan(
        (
            ("average 3", 0), ("sep 3", 1), ("max 3", 0), ("sep 7", 2), ("sep 7", 0),
            ("average 3", 1), ("max 3", 0), ("max 3", 1), ("cross 7", 0), ("sep 3", 5),
        ),
        (3, 4, 6),
    ),
)  # fmt: skip


class CellNetwork(nn.Module):
    """After a third and two thirds of the cells, a reduction cell halves the resolution."""

    def __init__(
        self, plans: tuple[CellPlan, CellPlan], channels: int = 48, cells: int = 14
    ) -> None:
        super().__init__()
        normal, reduction = plans
        self.stem_0 = nn.Sequential(
            nn.Conv2d(3, channels // 2, 3, 2, 1, bias=False),
            nn.BatchNorm2d(channels // 2),
            nn.ReLU(),
            nn.Conv2d(channels // 2, channels, 3, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.stem_1 = _relu_conv_norm(channels, channels, 3, 2)
        self.cells = nn.ModuleList()
        before, last, halved = channels, channels, True
        for i in range(cells):
            reduce = i in (cells // 3, 2 * cells // 3)
            if reduce:
                channels *= 2
            plan = reduction if reduce else normal
            self.cells.append(Cell(plan, before, last, channels, 2 if reduce else 1, halved))
            before, last, halved = last, len(plan.joined) * channels, reduce
        self.classifier = classifier(last)

    def forward(self, x: Tensor) -> Tensor:
        before = self.stem_0(x)
        last = self.stem_1(before)
        for cell in self.cells:
            before, last = last, cell(before, last)
        logits: Tensor = self.classifier(last)
        return logits


class Cell(nn.Module):
    """`halved`: the last cell has halved the resolution, and the one before it has not."""

    def __init__(
        self, plan: CellPlan, before: int, last: int, channels: int, stride: int, halved: bool
    ) -> None:
        super().__init__()
        self.plan = plan
        self.before = Halve(before, channels) if halved else _relu_conv_norm(before, channels)
        self.last = _relu_conv_norm(last, channels)
        self.ops = nn.ModuleList(
            _operation(name, channels, stride if state < 2 else 1) for name, state in plan.pairs
        )

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        states = [self.before(before), self.last(last)]
        terms = [(op, state) for op, (_, state) in zip(self.ops, self.plan.pairs, strict=True)]
        for (left, i), (right, j) in zip(terms[::2], terms[1::2], strict=True):
            states.append(left(states[i]) + right(states[j]))
        return torch.cat([states[i] for i in self.plan.joined], 1)


def _operation(name: str, channels: int, stride: int) -> nn.Module:
    if name == "skip":
        return nn.Identity() if stride == 1 else Halve(channels, channels)
    kind, size = name.split()
    kernel = int(size)
    if kind == "max":
        return nn.MaxPool2d(kernel, stride, kernel // 2)
    if kind == "average":
        return nn.AvgPool2d(kernel, stride, kernel // 2, count_include_pad=False)
    if kind == "cross":
        return nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, (1, kernel), (1, stride), (0, kernel // 2), bias=False),
            nn.Conv2d(channels, channels, (kernel, 1), (stride, 1), (kernel // 2, 0), bias=False),
            nn.BatchNorm2d(channels),
        )
    if kind == "dilated":
        return _separable(channels, kernel, stride, dilation=2)
    return nn.Sequential(_separable(channels, kernel, stride), _separable(channels, kernel, 1))


def _separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(
            channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False
        ),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
    )


def _relu_conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Halve(nn.Module):
    """Every second pixel, and every second pixel beginning one later, each squeezed."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        halved: Tensor = self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], 1))
        return halved
