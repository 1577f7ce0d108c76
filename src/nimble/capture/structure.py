"""Arguments and results as flat tensors plus a structure that says how they nest."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor with this number."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Anything that is not a tensor. Equal by type and value, so that 1, 1.0 and True differ."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash((type(self.value), self.value))
        except TypeError:
            return hash(type(self.value))


@dataclass(frozen=True, slots=True)
class Nest:
    """A container. `kind` says how it is rebuilt, `type` which class it was."""

    kind: str
    type: type[Any]
    keys: tuple[Any, ...]
    items: tuple[Structure, ...]


Structure = Leaf | Constant | Nest


def is_typed(structure: Structure) -> bool:
    """Whether a class of the user's is in it: a dataclass, a named tuple, a model output."""
    return isinstance(structure, Nest) and (
        structure.kind not in ("tuple", "list", "dict") or any(map(is_typed, structure.items))
    )


def flatten(thing: Any) -> tuple[list[torch.Tensor], Structure]:
    """All distinct tensors inside `thing`, in order, and the structure around them.

    A tensor that occurs twice is one leaf: a model may ask whether two arguments are the same.
    """
    tensors: list[torch.Tensor] = []
    places: dict[int, Leaf] = {}

    def walk(item: Any) -> Structure:
        if isinstance(item, torch.Tensor):
            if id(item) not in places:
                places[id(item)] = Leaf(len(tensors))
                tensors.append(item)
            return places[id(item)]
        opened = _open(item)
        if opened is None:
            _refuse_arrays(item)
            return Constant(item)
        kind, keys, items = opened
        return Nest(kind, type(item), keys, tuple(walk(i) for i in items))

    return tensors, walk(thing)


def unflatten(structure: Structure, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `flatten`."""
    if isinstance(structure, Leaf):
        return tensors[structure.index]
    if isinstance(structure, Constant):
        return structure.value
    items = [unflatten(item, tensors) for item in structure.items]
    return _REBUILD[structure.kind](structure, items)


_FIXED = (
    bool, int, float, complex, str, bytes, range, slice, type, enum.Enum, types.FunctionType,
    types.BuiltinFunctionType, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size,
)  # fmt: skip


def refuse_mutable(structure: Structure) -> None:
    """Raise InputError for an argument that could change without anybody noticing."""
    if isinstance(structure, Nest):
        for item in structure.items:
            refuse_mutable(item)
    elif (
        isinstance(structure, Constant)
        and structure.value is not None
        and not isinstance(structure.value, _FIXED)
    ):
        raise InputError(
            f"an argument is a {type(structure.value).__name__}, which would be frozen into the "
            "plan while its owner may change it; pass its values, or a dataclass"
        )


def describe(structure: Structure) -> str:
    """The structure in words, with tensors numbered: `(t0, {'mask': t1})`."""
    if isinstance(structure, Leaf):
        return f"t{structure.index}"
    if isinstance(structure, Constant):
        return repr(structure.value)
    if structure.kind in ("tuple", "list"):
        return f"({', '.join(map(describe, structure.items))})"
    pairs = zip(structure.keys, structure.items, strict=True)
    return f"{structure.type.__name__}({', '.join(f'{k}={describe(i)}' for k, i in pairs)})"


def paths(structure: Structure, name: str = "") -> dict[int, str]:
    """What a person would call each tensor: `mask`, `states[1]`, `batch.x`."""
    if isinstance(structure, Leaf):
        return {structure.index: name or "input"}
    if isinstance(structure, Constant):
        return {}
    found: dict[int, str] = {}
    for key, item in zip(structure.keys, structure.items, strict=True):
        step = f"[{key!r}]" if isinstance(key, int) else f".{key}"
        found |= paths(item, f"{name}{step}" if name else str(key))
    return found


def _open(item: Any) -> tuple[str, tuple[Any, ...], Iterable[Any]] | None:
    """How a container is taken apart: kind, keys, items. None for what is no container."""
    kind = type(item)
    if kind in (tuple, list):
        return kind.__name__, tuple(range(len(item))), item
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return "namedtuple", item._fields, item
    if isinstance(item, tuple) and not isinstance(item, torch.Size):
        return "tuple subclass", tuple(range(len(item))), item
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        if isinstance(item, Mapping):
            return "model output", tuple(item.keys()), item.values()
        names = tuple(f.name for f in dataclasses.fields(item) if hasattr(item, f.name))
        return "dataclass", names, [getattr(item, name) for name in names]
    if kind in (dict, OrderedDict):
        return "dict", tuple(item.keys()), item.values()
    if kind in pytree.SUPPORTED_NODES:
        items, context = pytree.SUPPORTED_NODES[kind].flatten_fn(item)
        return "registered", (*range(len(items)), _Context(context)), (*items, None)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """What a registered pytree node needs to be rebuilt; compared by its contents."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __repr__(self) -> str:
        return "context"


def _rebuild_dataclass(nest: Nest, items: list[Any]) -> Any:
    # Not through __init__: __post_init__ has run already when the model built the original.
    made = object.__new__(nest.type)
    for name, item in zip(nest.keys, items, strict=True):
        object.__setattr__(made, name, item)
    return made


def _rebuild_registered(nest: Nest, items: list[Any]) -> Any:
    context = cast(_Context, nest.keys[-1]).value
    return pytree.SUPPORTED_NODES[nest.type].unflatten_fn(items[:-1], context)


_REBUILD: dict[str, Callable[[Nest, list[Any]], Any]] = {
    "tuple": lambda nest, items: tuple(items),
    "list": lambda nest, items: items,
    "namedtuple": lambda nest, items: nest.type(*items),
    "tuple subclass": lambda nest, items: nest.type(items),
    "dict": lambda nest, items: nest.type(zip(nest.keys, items, strict=True)),
    "dataclass": _rebuild_dataclass,
    "model output": lambda nest, items: nest.type(**dict(zip(nest.keys, items, strict=True))),
    "registered": _rebuild_registered,
}


def _refuse_arrays(item: Any) -> None:
    if type(item).__module__ == "numpy" and hasattr(item, "__array_interface__"):
        raise InputError(
            "an argument is a NumPy array, which would be frozen into the plan as a constant; "
            "pass torch.from_numpy(array)"
        )
