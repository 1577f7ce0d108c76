"""What a function reaches besides its arguments: modules, globals, closures, objects."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from nimble.capture.contents import Place

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "nimble"}
_BY_ANY_NAME = {"getattr", "vars", "__dict__", "asdict", "astuple", "fields"}
"""Code that mentions one of these may read attributes that it does not name."""
# Methods without a name in any code that a trace does not run.
_NOT_CALLED = {"__init__", "__new__", "__post_init__", "__repr__", "__str__"}
_MOST = 1000
_DEEP = 3


class Reached:
    """Walks from a function to the modules that it uses, through the functions that it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.modules: dict[str, nn.Module] = {}
        self.globals: list[Place] = []
        self.places: list[Place] = []
        """Attributes of objects that the code names."""
        self.cells: list[types.CellType] = []
        self._seen: dict[int, Any] = {}
        self._functions: set[types.FunctionType] = set()
        self._mentioned: set[str] = set()
        self._kinds: list[tuple[type[Any], int]] = []
        """Of the objects, and how deep they lie."""
        self._walk("", function, 0)
        self._methods()
        if not self._mentioned & _BY_ANY_NAME:
            self.places = [place for place in self.places if place[1] in self._mentioned]

    def _walk(self, name: str, thing: Any, depth: int) -> None:
        if id(thing) in self._seen or depth > _DEEP or len(self._seen) > _MOST:
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, nn.Module):
            self._add(name, thing)
        elif isinstance(thing, functools.partial):
            self._walk(name, thing.func, depth)
            for i, item in enumerate(thing.args):
                self._walk(f"arg{i}", item, depth)
            for key, item in thing.keywords.items():
                self._walk(key, item, depth)
        elif isinstance(thing, types.MethodType):
            self._walk(name, thing.__self__, depth)
            if not isinstance(thing.__self__, nn.Module):
                self._function(thing.__func__, depth, type(thing.__self__))
        elif isinstance(thing, types.FunctionType):
            self._function(thing, depth, None)
        elif isinstance(thing, list | tuple):
            for i, item in enumerate(thing):
                self._walk(f"{name}.{i}", item, depth + 1)
        elif isinstance(thing, dict):
            for key, item in list(thing.items()):
                self._walk(f"{name}.{key}", item, depth + 1)
        elif not isinstance(thing, type | types.ModuleType):
            self._object(name, thing, depth)

    def values(self) -> list[tuple[str, Any]]:
        """Everything that was found by a name, besides modules."""
        found = [(name, thing) for _, name, thing in (*self.places, *self.globals)]
        return found + [("", cell.cell_contents) for cell in self.cells]

    def _add(self, name: str, module: nn.Module) -> None:
        free = (n for n in _names_like(name) if n not in self.modules)
        self.modules[next(free)] = module

    def _object(self, name: str, thing: Any, depth: int) -> None:
        inner = getattr(thing, "__wrapped__", None)  # of functools.cache, for one
        if inner is not None:
            self._walk(name, inner, depth)
        kind = type(thing)
        if _is_library(kind.__module__) or type(getattr(thing, "__dict__", None)) is not dict:
            return
        self._look_up(
            self.places, vars(thing), list(vars(thing)), depth + 1, f"{name}." if name else ""
        )
        self._kinds.append((kind, depth))

    def _methods(self) -> None:
        """What objects do: methods that any code names, and those that are called without a name.
        Each may name others."""
        known = -1
        while known < len(self._functions):
            known = len(self._functions)
            for kind, depth in list(self._kinds):
                for name, method in inspect.getmembers_static(kind):
                    unnamed = name.startswith("__") and name not in _NOT_CALLED
                    if unnamed or name in self._mentioned:
                        method = getattr(method, "fget", None) or getattr(
                            method, "__func__", method
                        )
                        self._function(method, depth, kind)
                if hasattr(kind, "__getattr__"):
                    self._mentioned.add("getattr")

    def _function(self, function: Any, depth: int, owner: type[Any] | None) -> None:
        """What a function mentions: in its closure, as a default, as a global, or as a method of
        the class that it belongs to."""
        if not isinstance(function, types.FunctionType) or function in self._functions:
            return
        self._functions.add(function)
        closure = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
            try:
                thing = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            if not isinstance(thing, type):
                self.cells.append(cell)
                self._walk(name, thing, depth)
        for i, item in enumerate(function.__defaults__ or ()):
            self._walk(f"default{i}", item, depth)
        for name, item in (function.__kwdefaults__ or {}).items():
            self._walk(name, item, depth)
        names = list(dict.fromkeys(_names_in(function.__code__)))
        self._mentioned.update(names)
        scope = function.__globals__
        if not _is_library(str(scope.get("__name__"))):
            self._look_up(self.globals, scope, names, depth)
            for thing in [scope[n] for n in names if isinstance(scope.get(n), types.ModuleType)]:
                if not _is_library(thing.__name__):
                    self._look_up(self.globals, vars(thing), names, depth)
        for name in names if owner is not None else ():
            method = inspect.getattr_static(owner, name, None)
            method = getattr(method, "fget", None) or getattr(method, "__func__", method)
            if isinstance(method, types.FunctionType):
                self._function(method, depth, owner)

    def _look_up(
        self,
        found: list[Place],
        scope: dict[str, Any],
        names: list[str],
        depth: int,
        prefix: str = "",
    ) -> None:
        for name in names:
            thing = scope.get(name)
            if name in scope and not isinstance(thing, types.ModuleType):
                found.append((scope, name, thing))
                self._walk(prefix + name, thing, depth)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _names_like(name: str) -> Iterator[str]:
    yield name
    for number in range(2, _MOST):
        yield f"{name}.{number}"


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES
