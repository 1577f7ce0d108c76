"""Gradients of activations and losses as the arithmetic that they are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

_aten = torch.ops.aten
_SIXTH = torch.tensor(1 / 6, dtype=torch.float32).item()


@functools.cache
def arithmetic() -> Mapping[Any, Callable[..., Any]]:
    """Operators to be traced as others, which are fused with what is around them."""
    from torch._decomp import get_decompositions

    known = get_decompositions(
        [
            _aten.elu_backward,
            _aten.gelu_backward,
            _aten.hardswish_backward,
            _aten.hardtanh_backward,
            _aten.leaky_relu_backward,
            _aten.log_sigmoid_backward,
            _aten.log_sigmoid_forward,
            _aten.mse_loss,
            _aten.mse_loss_backward,
            _aten.sigmoid_backward,
            _aten.silu_backward,
            _aten.tanh_backward,
            _aten.threshold_backward,
            _aten._log_softmax_backward_data,
            _aten._softmax_backward_data,
        ]
    )
    return {**known, _aten.hardsigmoid_backward.default: _hardsigmoid_backward}


def _hardsigmoid_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """With the sixth of PyTorch's kernel, which is one of single precision for doubles too."""
    return torch.where((x > -3.0) & (x < 3.0), gradient * _SIXTH, 0.0)
