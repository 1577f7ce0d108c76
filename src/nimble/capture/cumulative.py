"""Batch norms with `momentum=None`: averages of all batches so far.

PyTorch reads the number of batches out of a tensor, which a trace cannot. Here it stays in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_forward = _BatchNorm.forward


@contextmanager
def cumulative_averages() -> Iterator[None]:
    """While a model is traced; one trace runs at a time."""
    _BatchNorm.forward = _counting  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        _BatchNorm.forward = _forward  # type: ignore[method-assign]


def _counting(norm: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
    batches, mean, variance = norm.num_batches_tracked, norm.running_mean, norm.running_var
    averages = norm.training and norm.track_running_stats and norm.momentum is None
    if not averages or batches is None or mean is None or variance is None:
        return _forward(norm, x)
    norm._check_input_dim(x)  # type: ignore[no-untyped-call]
    batches.add_(1)
    # Those of this batch alone, beside what was there.
    own = torch.zeros_like(mean), torch.zeros_like(variance)
    result = nn.functional.batch_norm(x, *own, norm.weight, norm.bias, True, 1.0, norm.eps)
    with torch.no_grad():
        for average, new in zip((mean, variance), own, strict=True):
            # A share of many batches is less than half precision can add.
            wide = torch.promote_types(average.dtype, torch.float32)
            share = batches.to(wide).reciprocal()
            average.copy_(share * new.to(wide) + (1 - share) * average.to(wide))
    return result
