"""Kernels that eager takes where no gradient is needed, and that a trace never does."""

from __future__ import annotations

from typing import Any

import torch

from nimble.graph import contiguous_strides

_MAX_POOL1D = {
    torch.nn.functional.max_pool1d,
    torch.max_pool1d,
    torch.ops.aten.max_pool1d,
    torch.ops.aten.max_pool1d.default,
}


def as_by_shortcut(function: Any, args: tuple[Any, ...], result: Any) -> Any:
    """The result of a call in a trace, laid out as eager's kernel does.

    Max pooling over one dimension is a kernel of its own on the CPU, whose result is contiguous
    whatever its argument is. In a trace it is max pooling of an image, which keeps the argument's
    order. That stays, and its result is copied where it differs: there are fast kernels for it.
    """
    if function not in _MAX_POOL1D or not isinstance(result, torch.Tensor):
        return result
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor):  # given by its name
        x = result
    needs_gradient = x.requires_grad and torch.is_grad_enabled()
    mapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    if needs_gradient or mapped or x.device.type != "cpu":
        return result
    result = result.contiguous()
    # Strides of dimensions of size 1 are then still the image's.
    if result.stride() != contiguous_strides(tuple(result.shape)):
        result = result.view(-1).view(result.shape)
    return result
