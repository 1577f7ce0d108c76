"""Arguments and results as flat tensors plus a structure that says how they nest."""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import gc
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from nimble.errors import CaptureError, InputError


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor with this number."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Anything that is not a tensor. Equal by type and value, so that 1, 1.0 and True differ, and
    by the sign of zero; a NaN equals itself."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or type(self.value) is not type(other.value):
            return False
        if isinstance(self.value, float | complex):
            return repr(self.value) == repr(other.value)
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        if isinstance(self.value, float | complex):
            return hash(repr(self.value))
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


@functools.cache
def plain_call(count: int) -> Structure:
    """The structure of (args, kwargs) where those are so many different tensors, all positional."""
    leaves = Nest("tuple", tuple, tuple(range(count)), tuple(Leaf(i) for i in range(count)))
    return Nest("tuple", tuple, (0, 1), (leaves, Nest("dict", dict, (), ())))


def flatten_result(thing: Any) -> tuple[list[torch.Tensor], Structure]:
    """The same for what a model returns. Objects of classes that nobody told us of are taken apart
    where they hold tensors, as `copy.copy` does it, so that every call gives new ones."""
    tensors: list[torch.Tensor] = []
    places: dict[int, Leaf] = {}
    around: set[int] = set()

    def walk(item: Any, path: str) -> Structure:
        if isinstance(item, torch.Tensor):
            if id(item) not in places:
                places[id(item)] = Leaf(len(tensors))
                tensors.append(item)
            return places[id(item)]
        if item is None or isinstance(item, _FIXED):
            return Constant(item)
        opened = _open(item)
        if opened is None:
            if _is_array(item):
                raise CaptureError(f"{path} is a NumPy array; return a tensor instead")
            if type(item) not in (set, frozenset) and not _holds_tensors(item):
                return Constant(item)
            opened = _open_object(item)
        if opened is None or id(item) in around:
            raise CaptureError(
                f"{path} is a {type(item).__name__} that holds tensors, and Nimble does not know "
                "how to build another one at every call. Return its tensors in a tuple, list, dict "
                "or dataclass, leave it out (use_cache=False, of a Hugging Face model), or teach "
                "PyTorch its class with torch.utils._pytree.register_pytree_node"
            )
        kind, keys, items = opened
        around.add(id(item))
        inside = tuple(walk(i, _step(path, kind, k)) for k, i in zip(keys, items, strict=True))
        around.remove(id(item))
        return Nest(kind, type(item), keys, inside)

    return tensors, walk(thing, "the result")


def _step(path: str, kind: str, key: Any) -> str:
    if kind == "object":  # Its parts are dicts and lists, which add a step of their own.
        return path
    return f"{path}.{key}" if kind in ("namedtuple", "dataclass") else f"{path}[{key!r}]"


def unflatten(structure: Structure, tensors: Sequence[torch.Tensor]) -> Any:
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
    """The structure in words, with tensors numbered: `((t0, [t1]), dict(mask=t2))`."""
    if isinstance(structure, Leaf):
        return f"t{structure.index}"
    if isinstance(structure, Constant):
        return repr(structure.value)
    if structure.kind in ("tuple", "list"):
        inside = ", ".join(map(describe, structure.items))
        return f"({inside})" if structure.kind == "tuple" else f"[{inside}]"
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
        fields = [f.name for f in dataclasses.fields(item) if hasattr(item, f.name)]
        names = tuple(dict.fromkeys((*fields, *getattr(item, "__dict__", ()))))
        return "dataclass", names, [getattr(item, name) for name in names]
    if kind in (dict, OrderedDict):
        return "dict", tuple(item.keys()), item.values()
    if kind in pytree.SUPPORTED_NODES:
        items, context = pytree.SUPPORTED_NODES[kind].flatten_fn(item)
        return "registered", (*range(len(items)), _Context(context)), (*items, None)
    return None


def _open_object(item: Any) -> tuple[str, tuple[Any, ...], Iterable[Any]] | None:
    """An object of an ordinary class: its attributes, and what is in it if it is a list, dict or
    set. None where the class has its own way of being copied."""
    kind = type(item)
    if kind in (set, frozenset):
        return "tuple subclass", tuple(range(len(item))), item
    if hasattr(kind, "__setstate__") or hasattr(kind, "__copy__"):
        return None
    made = item.__reduce_ex__(2)
    if isinstance(made, str) or made[0] is not copyreg.__newobj__ or made[1] != (kind,):  # type: ignore[attr-defined]
        return None
    state, listed, mapped = (*made[2:], None, None, None)[:3]
    if not isinstance(state, dict | None):
        return None
    parts = state or {}, list(listed or ()), dict(mapped or ())
    return "object", ("attributes", "list", "dict"), parts


def _holds_tensors(thing: Any) -> bool:
    """Whether a tensor can be reached from an object, other than through code."""
    seen: set[int] = set()
    ahead = [thing]
    while ahead:
        item = ahead.pop()
        if isinstance(item, torch.Tensor):
            return True
        if id(item) not in seen and not isinstance(item, _CODE):
            seen.add(id(item))
            ahead += gc.get_referents(item)
    return False


_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


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


def _rebuild_object(nest: Nest, items: list[Any]) -> Any:
    attributes, listed, mapped = items
    made = copyreg.__newobj__(nest.type)  # type: ignore[attr-defined]
    if attributes:
        vars(made).update(attributes)
    for item in listed:
        made.append(item)
    for key, item in mapped.items():
        made[key] = item
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
    "object": _rebuild_object,
}


def _refuse_arrays(item: Any) -> None:
    if _is_array(item):
        raise InputError(
            "an argument is a NumPy array, which would be frozen into the plan as a constant; "
            "pass torch.from_numpy(array)"
        )


def _is_array(item: Any) -> bool:
    return type(item).__module__ == "numpy" and hasattr(item, "__array_interface__")
