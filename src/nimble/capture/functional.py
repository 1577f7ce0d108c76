"""A function of tensors without side effects, in place of one that updates its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from nimble.errors import CaptureError

Tensors = Sequence[torch.Tensor]
Function = Callable[[Tensors, Tensors], list[torch.Tensor]]


@dataclass(frozen=True)
class Shown:
    """A result that is a view of an argument which the function updates."""

    argument: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    """In bytes, from the argument's first element."""


@dataclass
class Updates:
    """What a function does to its arguments, filled in when it is traced."""

    names: list[str] = field(default_factory=list)
    """The arguments that it updates in place."""
    shown: dict[int, Shown] = field(default_factory=dict)
    """By the number of the result."""


def functional(function: Function, names: Sequence[str], updates: Updates) -> Function:
    """`function` made functional: its results, and then the new contents of the arguments that it
    would have updated in place.

    This is how AOTAutograd does it: above dispatch, so that composite kernels are functional too.
    """

    def run(held: Tensors, given: Tensors) -> list[torch.Tensor]:
        everything = [*held, *given]
        above = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
        with torch._C._ExcludeDispatchKeyGuard(above), _FunctionalMode():
            wrapped = [FunctionalTensor.to_functional(tensor) for tensor in everything]
            results = function(wrapped[: len(held)], wrapped[len(held) :])
            for result in results:
                if result.layout is not torch.strided:
                    raise CaptureError(
                        f"a result has layout {result.layout}, and Nimble gives dense tensors "
                        "only; return its .to_dense()"
                    )
            shared = _shared(results, dict(zip(names, wrapped, strict=True)))
            results = [_unwrapped(result) for result in results]
            updates.names.clear()
            for name, tensor in zip(names, wrapped, strict=True):
                if torch._functionalize_has_metadata_mutation(tensor.elem):
                    raise CaptureError(
                        f"the model changes the shape of {name!r} in place; use the operator that "
                        "returns a new view (x.t() for x.t_())"
                    )
                if torch._functionalize_was_storage_changed(tensor.elem):
                    raise CaptureError(
                        f"the model gives {name!r} other memory (x.set_(y), x.data = y), which a "
                        "replay would not do; copy into it instead: x.copy_(y)"
                    )
                if torch._functionalize_has_data_mutation(tensor.elem):  # type: ignore[attr-defined]
                    updates.names.append(name)
                    results.append(_unwrapped(tensor))
            updates.shown = {i: s for i, s in shared.items() if s.argument in updates.names}
        return results

    return run


class _FunctionalMode(FunctionalTensorMode):
    """With draws in the order of the memory, as `x.bernoulli_(p)` of a dropout makes them. The
    operator that stands for it gives a contiguous result, drawn in the order of that."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.bernoulli_.float and not args[0].is_contiguous():
            drawn, *rest = args
            order = sorted(range(drawn.dim()), key=lambda d: (-drawn.stride(d), d))
            with self:
                drawn.permute(order).bernoulli_(*rest, **(kwargs or {}))
            return drawn
        return super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def _shared(results: Tensors, arguments: dict[str, FunctionalTensor]) -> dict[int, Shown]:
    """The results that share memory with an argument, by their numbers."""
    owners = {t.untyped_storage()._cdata: (name, t) for name, t in arguments.items()}
    shared = {}
    for i, result in enumerate(results):
        # What is shown conjugated or negated is no view of the bytes.
        if not isinstance(result, FunctionalTensor) or result.is_conj() or result.is_neg():
            continue
        if (owner := owners.get(result.untyped_storage()._cdata)) is not None:
            name, argument = owner
            start = _start(result) - _start(argument)
            shared[i] = Shown(name, tuple(result.shape), result.stride(), start)
    return shared


def _start(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _unwrapped(tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, FunctionalTensor):
        return tensor  # type: ignore[no-any-return]
    torch._sync(tensor)  # type: ignore[attr-defined, no-untyped-call]
    return torch._from_functional_tensor(tensor.elem)
