"""Random weights with which a wrong answer shows."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

M = TypeVar("M", bound=nn.Module)


def keep_contrast(model: M) -> M:
    """Initialises a deep stack without batch norm so that different inputs stay different.

    After a ReLU all inputs of a layer have a positive mean, whatever the image; weights that sum to
    zero do not pass it on, and their scale keeps activations from fading.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            dims = tuple(range(1, module.weight.ndim))
            with torch.no_grad():
                module.weight -= module.weight.mean(dims, keepdim=True)
    return model


def enliven(model: nn.Module, *, seed: int = 0) -> None:
    """Changes weights as they are before training where they would hide a wrong answer.

    A scale of 1, a shift of 0 or a branch scaled by 0 hides a kernel that leaves it out, so
    parameters that hold one number throughout become random. Matrices so small that signals fade
    from layer to layer are scaled up.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and parameter.numel() > 0:
                _vary(name, parameter, generator)
        for module in model.modules():
            if isinstance(module, nn.Linear | _ConvNd) and module.weight.numel() > 0:
                _scale_up(module.weight)


def _vary(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    value = parameter.flatten()[0]
    if not torch.all(parameter == value):
        return
    if name.endswith("bias") or (value == 0 and parameter.ndim > 1):
        parameter.normal_(std=0.1, generator=generator)
    else:
        # A scale near 0 switches a branch off until training has begun.
        scale = float(value) if abs(value) >= 0.1 else 1.0
        parameter.uniform_(0.5, 1.5, generator=generator).mul_(scale)


def _scale_up(weight: Tensor) -> None:
    """To the size that keeps a signal as large as it is, if it is below half of that."""
    keeping = (weight.numel() / weight.shape[0]) ** -0.5
    size = weight.square().mean().sqrt()
    if size < 0.5 * keeping:
        weight.mul_(keeping / size)
