"""A deep stack of layers so small that the cost of launching them is all there is."""

from __future__ import annotations

from torch import nn

from nimble.zoo.weights import keep_contrast


def mlp(depth: int = 32, width: int = 64) -> nn.Sequential:
    return keep_contrast(
        nn.Sequential(
            *[
                nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())
                for _ in range(depth)
            ]
        )
    )
