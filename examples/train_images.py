"""Train a small residual network on images of CIFAR's shape, in eager and with one plan a step.

The images are stripes of ten directions, in random colours, shifts and noise: generated, and yet
something to be learned. The last batch of an epoch is smaller, and gets a plan of its own.

python examples/train_images.py [picture.svg]
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from race import Batches, race, report
from torch import nn, optim

CLASSES, IMAGES, BATCH, EPOCHS = 10, 1000, 32, 6


def block(inside: int, out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, stride, 1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, 1, 1, bias=False),
        nn.BatchNorm2d(out),
    )


class Residual(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.long = block(inside, out, stride)
        self.short = nn.Conv2d(inside, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.long(x) + self.short(x)).relu()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1),
        *(Residual(16, 16, 1) for _ in range(2)),
        Residual(16, 32, 2),
        Residual(32, 32, 1),
        Residual(32, 64, 2),
        Residual(64, 64, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def stripes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 3 x 32 x 32, and which way their stripes go."""
    ways = torch.randint(0, CLASSES, (count,))
    angle = (ways * math.pi / CLASSES).view(-1, 1, 1)
    down, across = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    phase = torch.rand(count, 1, 1) * 6.28
    waves = torch.sin((down * angle.cos() + across * angle.sin()) * 0.8 + phase)
    colour = torch.randn(count, 3, 1, 1)
    return colour * waves.unsqueeze(1) + 0.7 * torch.randn(count, 3, 32, 32), ways


def batches() -> Batches:
    images, ways = stripes(IMAGES)
    found: Batches = []
    for _ in range(EPOCHS):
        order = torch.randperm(IMAGES).split(BATCH)
        found += [(images[some], ways[some]) for some in order]
    return found


def main(picture: Path) -> None:
    torch.manual_seed(0)
    data = batches()
    runs = race(
        network(),
        nn.CrossEntropyLoss(),
        lambda parameters: optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4),
        lambda optimizer: optim.lr_scheduler.OneCycleLR(optimizer, 0.01, len(data)),
        data,
        clip_norm=5.0,
    )
    report("A residual network, images of 32 x 32", runs, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "images.svg"))
