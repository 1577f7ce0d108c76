"""A function of tensors without side effects, in place of one that updates its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from nimble.errors import CaptureError

Tensors = Sequence[torch.Tensor]
Function = Callable[[Tensors, Tensors], list[torch.Tensor]]


def functional(function: Function, names: Sequence[str], updated: list[str]) -> Function:
    """`function` made functional: its results, and then the new contents of the arguments that it
    would have updated in place. Their names go into `updated` when it is called.

    This is how AOTAutograd does it: above dispatch, so that composite kernels are functional too.
    """

    def run(held: Tensors, given: Tensors) -> list[torch.Tensor]:
        everything = [*held, *given]
        above = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
        with torch._C._ExcludeDispatchKeyGuard(above), FunctionalTensorMode():
            wrapped = [FunctionalTensor.to_functional(tensor) for tensor in everything]
            results = function(wrapped[: len(held)], wrapped[len(held) :])
            results = [_unwrapped(result) for result in results]
            updated.clear()
            for name, tensor in zip(names, wrapped, strict=True):
                if torch._functionalize_has_metadata_mutation(tensor.elem):
                    raise CaptureError(
                        f"the model changes the shape of {name!r} in place; use the operator that "
                        "returns a new view (x.t() for x.t_())"
                    )
                if torch._functionalize_has_data_mutation(tensor.elem):  # type: ignore[attr-defined]
                    updated.append(name)
                    results.append(_unwrapped(tensor))
        return results

    return run


def _unwrapped(tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, FunctionalTensor):
        return tensor  # type: ignore[no-any-return]
    torch._sync(tensor)  # type: ignore[attr-defined, no-untyped-call]
    return torch._from_functional_tensor(tensor.elem)
