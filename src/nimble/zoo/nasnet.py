"""NASNet-A (Zoph et al., 2018), as ported to PyTorch: the cells are those found by search."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nimble.zoo.blocks import classifier


def nasnet_a(cells: int, filters: int, stem: int) -> NASNetA:
    """`cells` normal cells at each of three resolutions; `filters` as the paper counts them."""
    return NASNetA(cells, filters // 24, stem)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A separable convolution."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
    )


def _squeeze(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), _norm(outputs))


def _average(stride: int = 1) -> nn.AvgPool2d:
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


def _shifted(op: nn.Module, x: Tensor, shift: bool) -> Tensor:
    """`op` on windows that start one row and one column later if `shift`.

    The weights come from TensorFlow, whose padding of a stride of 2 differs from PyTorch's where
    the image has an even size.
    """
    if shift:
        x = F.pad(x, (1, 0, 1, 0))
    x = op(x)
    return x[:, :, 1:, 1:].contiguous() if shift else x


class Separable(nn.Module):
    """ReLU, separable convolution and batch norm, twice."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.first = _conv(inputs, outputs, kernel, stride)
        self.first_norm = _norm(outputs)
        self.second = _conv(outputs, outputs, kernel)
        self.second_norm = _norm(outputs)

    def forward(self, x: Tensor, shift: bool = False) -> Tensor:
        x = self.first_norm(_shifted(self.first, self.relu(x), shift))
        twice: Tensor = self.second_norm(self.second(self.relu(x)))
        return twice


class HalvedResolution(nn.Module):
    """Every second pixel, and every second pixel beginning one later, each squeezed."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.pick = nn.AvgPool2d(1, 2)
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.norm = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        odd = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        both = torch.cat([self.even(self.pick(x)), self.odd(self.pick(odd))], 1)
        halved: Tensor = self.norm(both)
        return halved


class NormalCell(nn.Module):
    """`current` and `previous` bring the results of the last two cells to `width` channels."""

    def __init__(self, current: nn.Module, previous: nn.Module, width: int) -> None:
        super().__init__()
        self.previous = previous
        self.current = current
        self.current_5 = Separable(width, width, 5)
        self.previous_3 = Separable(width, width, 3)
        self.previous_5 = Separable(width, width, 5)
        self.previous_3_again = Separable(width, width, 3)
        self.current_3 = Separable(width, width, 3)
        self.average = _average()

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        before = self.previous(before)
        x = self.current(x)
        sums = [
            self.current_5(x) + self.previous_3(before),
            self.previous_5(before) + self.previous_3_again(before),
            self.average(x) + before,
            self.average(before) + self.average(before),
            self.current_3(x) + x,
        ]
        return torch.cat([before, *sums], 1)


class ReductionCell(nn.Module):
    """Halves the resolution. `before` has `inputs` channels once it has been through `previous`."""

    def __init__(
        self, current: nn.Module, previous: nn.Module, width: int, inputs: int | None = None
    ) -> None:
        super().__init__()
        inputs = width if inputs is None else inputs
        self.previous = previous
        self.current = current
        self.current_5 = Separable(width, width, 5, 2)
        self.previous_7 = Separable(inputs, width, 7, 2)
        self.previous_7_again = Separable(inputs, width, 7, 2)
        self.previous_5 = Separable(inputs, width, 5, 2)
        self.inner_3 = Separable(width, width, 3)
        self.average = _average()
        self.halve_average = _average(2)
        self.halve_max = nn.MaxPool2d(3, 2, 1)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        before = self.previous(before)
        x = self.current(x)
        shift = x.shape[-1] % 2 == 0
        first = self.current_5(x, shift) + self.previous_7(before, shift)
        second = _shifted(self.halve_max, x, shift) + self.previous_7_again(before, shift)
        third = _shifted(self.halve_average, x, shift) + self.previous_5(before, shift)
        fourth = self.average(first) + second
        fifth = self.inner_3(first, shift) + _shifted(self.halve_max, x, shift)
        return torch.cat([second, third, fourth, fifth], 1)


class NASNetA(nn.Module):
    def __init__(self, cells: int, width: int, stem: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), _norm(stem))
        quarter, half = width // 4, width // 2
        self.stem_0 = ReductionCell(_squeeze(stem, quarter), nn.Identity(), quarter, stem)
        self.stem_1 = ReductionCell(_squeeze(4 * quarter, half), HalvedResolution(stem, half), half)
        self.stages = nn.ModuleList()
        # The channels of the cell before the last one, and of the last one.
        channels = [4 * quarter, 4 * half]
        for stage in range(3):
            if stage > 0:
                width *= 2
                squeezes = [_squeeze(c, width) for c in channels]
                self.stages.append(ReductionCell(squeezes[1], squeezes[0], width))
                channels = [channels[1], 4 * width]
            previous: nn.Module = HalvedResolution(channels[0], width)
            for _ in range(cells):
                self.stages.append(NormalCell(_squeeze(channels[1], width), previous, width))
                previous = _squeeze(channels[1], width)
                channels = [channels[1], 6 * width]
        self.classifier = nn.Sequential(nn.ReLU(), classifier(channels[1], dropout=0.5))

    def forward(self, x: Tensor) -> Tensor:
        stem = self.conv(x)
        before = self.stem_0(stem, stem)
        x = self.stem_1(before, stem)
        for cell in self.stages:
            x, before = cell(x, before), x
        logits: Tensor = self.classifier(x)
        return logits
