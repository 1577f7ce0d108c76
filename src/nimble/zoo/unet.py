"""U-Net (Ronneberger et al., 2015), padded and with batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nimble.zoo.blocks import conv_norm


class UNet(nn.Module):
    """An image whose sides are multiples of 16 to a map of logits of the same size."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.enter = _twice(3, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _twice(w, 2 * w)) for w in widths[:-1]
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_twice(2 * w, w) for w in reversed(widths[:-1]))
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = down(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], 1))
        logits: Tensor = self.leave(x)
        return logits


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3))
