"""Gives batch norms the statistics of some data, where training has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nimble.zoo.inputs import random_like

FEWEST, MOST = 4, 32
"""Passes; more than the fewest where a batch norm has then seen less than ENOUGH values."""
ENOUGH = 128


def calibrate(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Sets the statistics of every batch norm to those of random inputs like `args`, `kwargs`.

    An untrained network leaves them at mean 0 and variance 1. Then activations fade from layer to
    layer until the outputs are all but constant, and any comparison of outputs passes. Nothing else
    about the model changes: not its mode, not its other buffers.
    """
    norms = [norm for norm in model.modules() if _tracks(norm)]
    if not norms:
        return
    statistics = [Statistics() for _ in norms]
    hooks = [n.register_forward_pre_hook(s) for n, s in zip(norms, statistics, strict=True)]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _undisturbed(model):
            for done in range(1, MOST + 1):
                # Not the seeds that a caller would use to look at the model afterwards.
                some_args, some_kwargs = random_like((args, dict(kwargs or {})), seed=-done)
                model(*some_args, **some_kwargs)
                if done >= FEWEST and all(s.saw_enough for s in statistics):
                    break
    finally:
        for hook in hooks:
            hook.remove()


def _tracks(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and module.running_mean is not None


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """In eval mode inside; afterwards modes and buffers are as before, batch norm's excepted."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (buffer, buffer.clone())
        for module in model.modules()
        if not _tracks(module)
        for buffer in module.buffers(recurse=False)
    ]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for buffer, before in buffers:
            buffer.copy_(before)


class Statistics:
    """A hook that keeps a batch norm's statistics equal to those of all it has seen so far."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0

    @property
    def saw_enough(self) -> bool:
        """Also true of a batch norm that the model does not run."""
        return self.count == 0 or self.count >= ENOUGH

    def __call__(self, norm: nn.Module, args: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, _BatchNorm)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        x = args[0]
        variance, mean = torch.var_mean(x, (0, *range(2, x.ndim)), correction=0)
        count = x.numel() // x.shape[1]
        total = self.count + count
        step = mean - self.mean
        self.squares = self.squares + variance * count + step**2 * (self.count * count / total)
        self.mean = self.mean + step * (count / total)
        self.count = total
        # What is expected of the next value, not of those seen: else few values make activations
        # grow from layer to layer.
        expected = self.squares * ((total + 1) / (total * max(total - 1, 1)))
        norm.running_mean.copy_(self.mean)
        norm.running_var.copy_(_not_too_small(expected))


def _not_too_small(variance: Tensor) -> Tensor:
    """A channel seen constant may vary later, and must not then drown out all others."""
    average = variance.mean()
    return variance.clamp(min=1e-2 * average) if average > 0 else torch.ones_like(variance)
