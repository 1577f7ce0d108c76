"""The blocks that several convolutional networks are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Size = int | tuple[int, int]


def half(kernel: Size) -> Size:
    """The padding that keeps the resolution of a convolution with an odd kernel."""
    return kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: Size = 1,
    stride: int = 1,
    *,
    padding: Size | None = None,
    groups: int = 1,
    eps: float = 1e-5,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution, batch norm and an activation; padded to keep the resolution unless told."""
    if padding is None:
        padding = half(kernel)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def classifier(channels: int, *, dropout: float = 0.0) -> nn.Sequential:
    """What ends most networks for ImageNet: average over the image, then 1000 logits."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels, 1000)
    )


class Fork(nn.Module):
    """Runs every branch on the same input and concatenates their results along channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Residual(nn.Module):
    """The sum of a body and a shortcut, the input itself unless another shortcut is given."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut if shortcut is not None else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.shortcut(x)
        return total
