"""DenseNet-121 and -201 (Huang et al., 2017): every layer of a block reads all layers before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nimble.zoo.blocks import classifier, conv_norm

GROWTH = 32


def densenet(depths: tuple[int, ...] = (6, 12, 24, 16)) -> nn.Sequential:
    layers: list[nn.Module] = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for i, depth in enumerate(depths):
        layers.append(DenseBlock(channels, depth))
        channels += depth * GROWTH
        if i < len(depths) - 1:
            layers.append(_transition(channels))
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), classifier(channels))


def _norm_conv(inputs: int, outputs: int, kernel: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
    )


def _transition(channels: int) -> nn.Sequential:
    return nn.Sequential(_norm_conv(channels, channels // 2), nn.AvgPool2d(2, 2))


class DenseBlock(nn.Module):
    def __init__(self, inputs: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                _norm_conv(inputs + i * GROWTH, 4 * GROWTH), _norm_conv(4 * GROWTH, GROWTH, 3)
            )
            for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)
