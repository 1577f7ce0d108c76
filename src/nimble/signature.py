"""What a plan is made for: the types of the tensors, and everything else a call may vary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from nimble import _aten
from nimble.capture.structure import Structure, describe, plain_call
from nimble.errors import InputError
from nimble.graph import contiguous_strides

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""The classes of tensors an engine takes; subclasses do things that a replay would skip."""
modes_count = torch._C._len_torch_dispatch_stack
"""How many modes look at, or trace, what operators do in this thread."""
Ambient = tuple[bool, torch.dtype | None, torch.dtype]
TensorType = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Signature:
    """Two calls with equal signatures replay the same plan."""

    structure: Structure
    tensors: tuple[TensorType, ...]
    training: tuple[bool, ...]
    ambient: Ambient
    """Autocast and default dtype, which change what the model computes."""

    def gate(self) -> _aten.Gate | None:
        """Lets calls through that differ in the types of their tensors at most; None where the
        arguments are not all plain tensors."""
        count = len(self.tensors)
        on, autocast, default = self.ambient
        if self.structure != plain_call(count) or count > _aten.Gate.MOST:
            return None
        return _aten.Gate(count, autocast if on else None, default)

    def distance(self, other: Signature) -> int:
        """In how much they differ."""
        if self.structure != other.structure:
            return 1 + 3 * len(self.tensors)
        pairs = zip(self.tensors, other.tensors, strict=True)
        return sum(a != b for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))

    def difference(self, other: Signature, names: list[str]) -> str:
        """In words: what `self` has that made the plan for `other` unfit."""
        if self.structure != other.structure:
            return f"arguments {describe(self.structure)} instead of {describe(other.structure)}"
        for name, mine, theirs in zip(names, self.tensors, other.tensors, strict=True):
            if mine != theirs:
                return f"{name} is {type_text(mine)} instead of {type_text(theirs)}"
        if self.training != other.training:
            return "a submodule's training mode differs"
        return "autocast or the default dtype differs"


def ambient(place: torch.device) -> Ambient:
    on = torch.is_autocast_enabled(place.type)
    return (on, torch.get_autocast_dtype(place.type) if on else None, torch.get_default_dtype())


def type_of(tensor: torch.Tensor) -> TensorType:
    """dtype, shape and strides; strides that address nothing are those of a contiguous tensor."""
    shape = tuple(tensor.shape)
    strides = contiguous_strides(shape) if tensor.is_contiguous() else tuple(tensor.stride())
    return tensor.dtype, shape, strides


def type_text(type: TensorType) -> str:
    dtype, shape, strides = type
    text = f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step:
            return f"{text} with strides {strides}"
        step *= size
    return text


def _tangent(tensor: torch.Tensor) -> torch.Tensor | None:
    return forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-any-return, no-untyped-call]


def refuse_tracing() -> None:
    if get_proxy_mode() is not None:
        raise InputError(
            "an engine cannot be traced (make_fx, torch.export): its replay calls no operators "
            "that a tracer sees; trace the model that it was made from"
        )


def check_tensor(tensor: torch.Tensor, name: str, place: torch.device) -> None:
    """Refuse what no plan on this device can take, with what to do instead."""
    if tensor.device != place:
        todo = "the CPU: .cpu()" if place.type == "cpu" else f'{place}: .to("{place}")'
        raise InputError(f"{name} is on {tensor.device}; this engine runs on {todo}")
    if tensor.is_nested:
        raise InputError(
            f"{name} is a nested tensor; expected a dense one: torch.nested.to_padded_tensor"
        )
    if tensor.layout is not torch.strided:
        raise InputError(f"{name} has layout {tensor.layout}; expected a dense tensor: .to_dense()")
    if type(tensor) not in PLAIN:
        raise InputError(
            f"{name} is a {type(tensor).__name__}; expected a plain torch.Tensor, as the engine "
            "would skip what the subclass does"
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise InputError(
            f"{name} is inside of a function transform (torch.func.vmap, grad, jvp), which sees "
            "no operators in a replay; compile the transformed function"
        )
    if forward_ad._current_level >= 0 and _tangent(tensor) is not None:
        raise InputError(
            f"{name} carries a forward-mode derivative, and an engine computes none; compile a "
            "function that calls torch.func.jvp"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise InputError(
            f"{name} requires grad, but an engine computes no gradients; call it under "
            'torch.no_grad(), or train through torch.compile(model, backend="nimble")'
        )
