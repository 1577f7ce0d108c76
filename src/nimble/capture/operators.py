"""Which PyTorch operators a replay may call, and what they do besides computing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from nimble.errors import UnsupportedOpError

_ANYWHERE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@dataclass(frozen=True, slots=True)
class Place:
    """Where operators run."""

    device: torch.device
    runs_python: bool = False
    """Whether operators that are written in Python may be called."""

    @property
    def generators(self) -> list[int]:
        """The GPU whose random generator operators draw from, if they run on one."""
        return [self.device.index or 0] if self.device.type == "cuda" else []


CPU = Place(torch.device("cpu"))


def find(op: str) -> OpOverload:
    """The operator that `Task.op` names, such as `aten.add.Tensor`."""
    try:
        namespace, name, overload = op.split(".")
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (ValueError, AttributeError) as error:
        raise UnsupportedOpError(f"{op}: this PyTorch has no such operator") from error
    if not isinstance(found, OpOverload):
        raise UnsupportedOpError(f"{op}: not an operator")
    return found


def _name(op: OpOverload) -> str:
    return str(op._schema.name) + (f".{op._overloadname}" if op._overloadname != "default" else "")


@functools.cache
def why_refused(op: OpOverload, place: Place = CPU) -> str | None:
    """Why a replay cannot call this operator; None if it can."""
    if op is not torch.ops.aten.copy_.default and op._schema.is_mutable:
        return (
            "it changes a tensor in place that the model does not own as a buffer or an input; "
            "make it a buffer (register_buffer)"
        )
    kernels = [
        line
        for line in torch._C._dispatch_dump(_name(op)).splitlines()
        if line.startswith((place.device.type.upper(), *_ANYWHERE))
    ]
    if not place.runs_python and any(".py:" in line.split(" :: ")[0] for line in kernels):
        return "it is implemented in Python, and a replay runs without Python"
    if not kernels:
        return f"it has no kernel for the {place.device.type.upper()}"
    return None


# Arguments that a kernel only computes with. A generator cannot be written into a file, so it is
# never given; a device is checked to be the engine's.
_COMPUTED_WITH = {"Tensor", "int", "float", "bool", "number", "Device", "Generator"}
# Strings that choose a way to compute. Any other may name a file, or whatever is outside.
_CHOICES = {"UPLO", "approximate", "driver", "mode", "reduce", "rounding_mode", "side"}


@functools.cache
def why_not_pure(op: OpOverload, place: Place = CPU) -> str | None:
    """Why an operator is not on the allow-list of saved engines; None if it is.

    The allow-list is this rule, *pure kernels*: an `aten` operator, with a C++ kernel for the
    device, that returns tensors and nothing else, all of them new (`copy_` alone writes to an
    argument), and that takes only what a kernel computes with.
    """
    if op.namespace != "aten":
        return "it is none of PyTorch's own"
    if (why := why_refused(op, place)) is not None:
        return why
    schema = op._schema
    if not schema.returns or {_base(r.type) for r in schema.returns} != {"Tensor"}:
        return "it returns something other than tensors"
    if op is not torch.ops.aten.copy_.default and any(r.alias_info for r in schema.returns):
        return "it returns a view of its argument"
    for argument in schema.arguments:
        kind = _base(argument.type)
        if kind not in _COMPUTED_WITH and not (kind == "str" and argument.name in _CHOICES):
            return f"its argument {argument.name!r} is a {kind}, which may reach outside"
    return None


def _base(kind: Any) -> str:
    """`List[Optional[Tensor]]` → `Tensor`."""
    return str(kind).rpartition("[")[2].rstrip("]")


def is_random(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call draws random numbers. Attention without dropout does not."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    for place, argument in enumerate(op._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p")
            return bool(argument.default_value if given is None else given)
    return True


def is_view(op: OpOverload) -> bool:
    """Whether the operator's results are views of its arguments by its schema."""
    returns = op._schema.returns
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )
