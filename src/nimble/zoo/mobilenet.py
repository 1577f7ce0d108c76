"""MobileNetV2 (Sandler et al., 2018)."""

from __future__ import annotations

from functools import partial

from torch import nn

from nimble.zoo.blocks import Residual, classifier, conv_norm

conv = partial(conv_norm, activation=nn.ReLU6)

STAGES = (
    # expansion, channels, blocks, stride
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> nn.Sequential:
    layers: list[nn.Module] = [conv(3, 32, 3, 2)]
    channels = 32
    for expansion, outputs, blocks, stride in STAGES:
        for i in range(blocks):
            layers.append(_inverted(channels, outputs, expansion, stride if i == 0 else 1))
            channels = outputs
    return nn.Sequential(*layers, conv(channels, 1280), classifier(1280, dropout=0.2))


def _inverted(inputs: int, outputs: int, expansion: int, stride: int) -> nn.Module:
    width = inputs * expansion
    layers = [conv(inputs, width)] if expansion > 1 else []
    layers.append(conv(width, width, 3, stride, groups=width))
    layers.append(conv_norm(width, outputs, activation=None))
    body = nn.Sequential(*layers)
    return Residual(body) if stride == 1 and inputs == outputs else body
