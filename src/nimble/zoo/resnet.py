"""ResNet with bottleneck blocks (He et al., 2016); the stride sits on the 3×3 convolution."""

from __future__ import annotations

from torch import nn

from nimble.zoo.blocks import Residual, classifier, conv_norm


def resnet(depths: tuple[int, ...]) -> nn.Sequential:
    stages: list[nn.Module] = []
    channels = 64
    for i, depth in enumerate(depths):
        width = 64 << i
        for j in range(depth):
            stages.append(_bottleneck(channels, width, stride=2 if i > 0 and j == 0 else 1))
            channels = 4 * width
    return nn.Sequential(
        conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *stages, classifier(channels)
    )


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Sequential:
    outputs = 4 * width
    body = nn.Sequential(
        conv_norm(inputs, width),
        conv_norm(width, width, 3, stride),
        conv_norm(width, outputs, activation=None),
    )
    # Blocks that stay near the identity, as trained ones do, keep rounding errors small.
    nn.init.constant_(body.get_parameter("2.1.weight"), 0.25)
    same = inputs == outputs and stride == 1
    shortcut = None if same else conv_norm(inputs, outputs, 1, stride, activation=None)
    return nn.Sequential(Residual(body, shortcut), nn.ReLU())
