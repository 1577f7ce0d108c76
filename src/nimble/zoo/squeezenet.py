"""SqueezeNet 1.1 (Iandola et al., 2016)."""

from __future__ import annotations

from torch import nn

from nimble.zoo.blocks import Fork, half
from nimble.zoo.weights import keep_contrast


def squeezenet() -> nn.Sequential:
    return keep_contrast(
        nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU()),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            _fire(64, 16, 64),
            _fire(128, 16, 64),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            _fire(128, 32, 128),
            _fire(256, 32, 128),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            _fire(256, 48, 192),
            _fire(384, 48, 192),
            _fire(384, 64, 256),
            _fire(512, 64, 256),
            nn.Dropout(0.5),
            _conv(512, 1000),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
    )


def _conv(inputs: int, outputs: int, kernel: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=half(kernel)), nn.ReLU())


def _fire(inputs: int, squeezed: int, expanded: int) -> nn.Sequential:
    return nn.Sequential(
        _conv(inputs, squeezed), Fork(_conv(squeezed, expanded), _conv(squeezed, expanded, 3))
    )
