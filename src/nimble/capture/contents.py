"""What lies in attributes and globals that a trace may have read: watched, compared by value."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import torch
from torch import nn

Place = tuple[dict[str, Any], str, Any]
"""An entry of a dict, and what is there; a key that is not there stands for the dict's size."""
Loose = list[Any] | set[Any] | deque[Any] | dict[Any, Any] | types.CellType | Place
"""What is watched one by one, in Python. A place, where the size of its dict means nothing."""

_VALUES = (
    bool, int, float, complex, str, bytes, range, slice, type(None), torch.dtype, torch.device,
    torch.layout, torch.memory_format,
)  # fmt: skip
_LARGE = 256
"""Containers of more entries are watched for their size only."""
_DEEP = 4
_CLOSED = (*_VALUES, type, types.ModuleType, torch.Tensor, nn.Module)
"""What nothing lies in, or what is looked into elsewhere."""
# Their objects hold what is theirs, and what changes without a meaning.
_LIBRARIES = ("torch", "nimble", "logging", "threading", "weakref", "functools")


def entries(table: dict[str, Any]) -> list[Place]:
    """All entries of a dict, and its size."""
    return [(table, "", None), *((table, k, v) for k, v in table.items() if type(k) is str)]


def look_into(things: Iterable[Any]) -> tuple[list[Place], list[Loose]]:
    """The dict entries that lie below these things, and containers that are no such dicts."""
    places: list[Place] = []
    loose: list[Loose] = []
    seen: set[int] = set()

    def look(thing: Any, depth: int) -> None:
        if isinstance(thing, _CLOSED) or depth > _DEEP or id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, dict):
            if len(thing) > _LARGE:
                places.append((thing, "", None))
                return
            if all(type(key) is str for key in thing):
                places.extend(entries(thing))
            else:
                loose.append(thing)
            for item in list(thing.values()):
                look(item, depth + 1)
        elif isinstance(thing, list | tuple | set | frozenset | deque) and len(thing) <= _LARGE:
            if not isinstance(thing, tuple | frozenset):
                loose.append(thing)
            for item in thing:
                look(item, depth + 1)
        elif _is_open(thing):
            look(vars(thing), depth + 1)

    for thing in things:
        look(thing, 0)
    return places, loose


def frozen(thing: Any, names: dict[int, str], seen: dict[int, Any], depth: int = 0) -> Any:
    """What is to be compared of a thing: values with their types, so that 2, 2.0 and True differ,
    and zeros of either sign; tensors by `names` or identity; all else by identity."""
    if isinstance(thing, _VALUES):
        return type(thing), repr(thing)
    if isinstance(thing, torch.Tensor):
        return names.get(id(thing), id(thing))
    if isinstance(thing, _CLOSED) or depth > _DEEP:
        return id(thing)
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = id(thing)  # A circle ends here.
    inside: Any = id(thing)
    if isinstance(thing, dict | list | tuple | set | frozenset | deque):
        if len(thing) > _LARGE:
            return id(thing), len(thing)
        items = thing.items() if isinstance(thing, dict) else thing
        parts = [frozen(item, names, seen, depth + 1) for item in items]
        inside = frozenset(parts) if isinstance(thing, set | frozenset) else tuple(parts)
    elif _is_open(thing):
        inside = id(thing), frozen(vars(thing), names, seen, depth + 1)
    seen[id(thing)] = type(thing), inside
    return seen[id(thing)]


def _is_open(thing: Any) -> TypeGuard[Any]:
    """Whether a thing is an object with attributes, a configuration for one."""
    library = type(thing).__module__.partition(".")[0] in _LIBRARIES
    callable = isinstance(thing, types.FunctionType | types.MethodType)
    return not library and not callable and type(getattr(thing, "__dict__", None)) is dict


class Snapshot:
    """Notices that something else is in containers that are no dicts of names, or in a closure."""

    def __init__(self, loose: Sequence[Loose]) -> None:
        cells = [thing for thing in loose if isinstance(thing, types.CellType)]
        dicts = [thing for thing in loose if isinstance(thing, dict)]
        lists = [t for t in loose if isinstance(t, list | set | deque)]
        self._places = [thing for thing in loose if isinstance(thing, tuple)]
        # What is inside is held, so that nothing else can have its identity.
        self._held = [list(t) for t in lists], [(*t, *t.values()) for t in dicts]
        self._lists = list(zip(lists, map(_ids, self._held[0]), strict=True))
        self._dicts = list(zip(dicts, map(_ids, self._held[1]), strict=True))
        self._cells = [(cell, cell.cell_contents) for cell in cells]

    def changed(self) -> bool:
        # Every call comes by here: loops, where functions would be shorter.
        for cell, inside in self._cells:
            if cell.cell_contents is not inside:
                return True
        for scope, key, inside in self._places:
            if scope.get(key) is not inside:
                return True
        for thing, ids in self._lists:
            if [*map(id, thing)] != ids:
                return True
        for table, ids in self._dicts:  # noqa: SIM110
            if [*map(id, table), *map(id, table.values())] != ids:
                return True
        return False


def _ids(things: Iterable[Any]) -> list[int]:
    return [*map(id, things)]
