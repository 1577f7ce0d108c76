"""EfficientNet (Tan and Le, 2019): one network, scaled in width and depth."""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor, nn

from nimble.zoo.blocks import Residual, classifier, conv_norm

conv = partial(conv_norm, activation=nn.SiLU)

STAGES = (
    # expansion, channels, blocks, stride, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet(
    width: float = 1.0, depth: float = 1.0, *, dropout: float = 0.2, eps: float = 1e-5
) -> nn.Sequential:
    channels = _scaled(32, width)
    layers: list[nn.Module] = [conv(3, channels, 3, 2, eps=eps)]
    for expansion, base, blocks, stride, kernel in STAGES:
        outputs = _scaled(base, width)
        for i in range(math.ceil(blocks * depth)):
            step = stride if i == 0 else 1
            layers.append(_block(channels, outputs, expansion, step, kernel, eps))
            channels = outputs
    last = 4 * channels
    return nn.Sequential(*layers, conv(channels, last, eps=eps), classifier(last, dropout=dropout))


def _scaled(channels: int, width: float) -> int:
    """Rounded to a multiple of 8, but never down by more than a tenth."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def _block(
    inputs: int, outputs: int, expansion: int, stride: int, kernel: int, eps: float
) -> nn.Module:
    width = inputs * expansion
    layers: list[nn.Module] = [conv(inputs, width, eps=eps)] if expansion > 1 else []
    layers.append(conv(width, width, kernel, stride, groups=width, eps=eps))
    layers.append(SqueezeExcite(width, max(1, inputs // 4)))
    layers.append(conv_norm(width, outputs, activation=None, eps=eps))
    body = nn.Sequential(*layers)
    return Residual(body) if stride == 1 and inputs == outputs else body


class SqueezeExcite(nn.Module):
    """Scales every channel by a gate computed from the averages of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * self.gate(x)
        return scaled
