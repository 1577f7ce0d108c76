"""Random weights with which a wrong answer shows."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

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


def vary_constants(model: nn.Module) -> None:
    """Gives random numbers to parameters that hold one number throughout.

    A scale of 1, a shift of 0 or a branch scaled by 0 would hide a kernel that leaves it out.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point() or parameter.numel() == 0:
                continue
            value = parameter.flatten()[0]
            if not torch.all(parameter == value):
                continue
            if name.endswith("bias") or (value == 0 and parameter.ndim > 1):
                parameter.normal_(std=0.1)
            else:
                # A scale near 0 switches a branch off until training has begun.
                scale = float(value) if abs(value) >= 0.1 else 1.0
                parameter.uniform_(0.5, 1.5).mul_(scale)
