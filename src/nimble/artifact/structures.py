"""Structure ↔ JSON. Classes are written by name, and found again only among those given."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

from nimble.capture.structure import Constant, Leaf, Nest, Structure
from nimble.errors import ArtifactError

_PLAIN: dict[str, type[Any]] = {"tuple": tuple, "list": list}
_NAMED = {"namedtuple", "dataclass", "model output"}
# What torch.topk, torch.max and their like return: PyTorch's own classes, so always at hand.
_RETURNED = {
    f"torch.return_types.{name}": kind
    for name, kind in vars(torch.return_types).items()
    if isinstance(kind, type) and issubclass(kind, tuple)
}


def class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def encode(structure: Structure) -> dict[str, Any]:
    if isinstance(structure, Leaf):
        return {"leaf": structure.index}
    if isinstance(structure, Constant):
        return {"constant": _encode_constant(structure.value)}
    returned = structure.kind == "tuple subclass" and class_name(structure.type) in _RETURNED
    if not returned and structure.kind not in {*_PLAIN, *_NAMED, "dict"}:
        raise ArtifactError(
            f"an argument or result is a {class_name(structure.type)}, which cannot be saved; "
            "return tensors in tuples, lists, dicts or dataclasses"
        )
    return {
        "kind": structure.kind,
        "class": class_name(structure.type),
        "keys": [_encode_constant(key) for key in structure.keys],
        "items": [encode(item) for item in structure.items],
    }


def _encode_constant(value: Any) -> Any:
    # Other types would come back as something else, and no longer match a call's arguments.
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    raise ArtifactError(
        f"an argument or result holds {value!r} of type {type(value).__name__}, which cannot be "
        "saved; only None, bool, int, float and str can"
    )


def decode(data: Any, tensors: int, types: Mapping[str, type[Any]], depth: int = 0) -> Structure:
    """The structure; `tensors` is how many tensors it may refer to."""
    if not isinstance(data, dict) or depth > 100:
        raise ArtifactError("the file's structures of arguments and results are malformed")
    if "leaf" in data:
        index = data["leaf"]
        if type(index) is not int or not 0 <= index < tensors:
            raise ArtifactError(f"the file refers to tensor {index!r} of {tensors}")
        return Leaf(index)
    if "constant" in data:
        return Constant(_decode_constant(data["constant"]))
    keys, items, kind = data.get("keys"), data.get("items"), data.get("kind")
    if not isinstance(keys, list) or not isinstance(items, list) or len(keys) != len(items):
        raise ArtifactError("the file's structures of arguments and results are malformed")
    names = tuple(_decode_constant(key) for key in keys)
    inside = tuple(decode(item, tensors, types, depth + 1) for item in items)
    if kind in _PLAIN:
        return Nest(kind, _PLAIN[kind], names, inside)
    if kind == "dict":
        ordered = data.get("class") == class_name(OrderedDict)
        return Nest("dict", OrderedDict if ordered else dict, names, inside)
    if kind == "tuple subclass" and data.get("class") in _RETURNED:
        made = _RETURNED[data["class"]]
        made(range(len(inside)))  # Raises if it is not for this many.
        return Nest(kind, made, names, inside)
    if kind in _NAMED:
        found = types.get(str(data.get("class")))
        if found is not None:
            return Nest(str(kind), found, names, inside)
        return Nest("dict", dict, names, inside)
    raise ArtifactError(f"the file has a container of kind {kind!r}, which is not known")


def _decode_constant(data: Any) -> Any:
    if data is None or type(data) in (bool, int, str):
        return data
    if isinstance(data, dict) and isinstance(data.get("float"), str):
        try:
            return float.fromhex(data["float"])
        except (ValueError, OverflowError) as error:
            raise ArtifactError(f"the file holds a malformed float {data['float']!r}") from error
    raise ArtifactError(f"the file holds a malformed constant {data!r}")
