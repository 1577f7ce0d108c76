"""One spelling for every call: `f(x, mask=m)` has the same arguments as `f(x, m)`."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nimble.capture.structure import Structure, paths


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a function calls its arguments; none where it may tell one spelling from another."""

    positional: tuple[str | None, ...] = ()
    """Those that may be given by position; None for one that has no keyword."""
    named: tuple[str, ...] = ()
    """Those that are given by keyword only."""

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Read off the code itself: decorators that take any arguments may look at the spelling,
        whatever signature they show."""
        inner: Any = function
        if not isinstance(inner, types.FunctionType | types.MethodType):
            inner = inner.__call__
        bound = isinstance(inner, types.MethodType)
        inner = inner.__func__ if bound else inner
        if not isinstance(inner, types.FunctionType):
            return Parameters()
        code = inner.__code__
        names, count, silent = code.co_varnames, code.co_argcount, code.co_posonlyargcount
        positional = (*[None] * silent, *names[silent:count])[int(bound) :]
        return Parameters(positional, names[count : count + code.co_kwonlyargcount])

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with as many arguments as possible by position, and keywords in the
        function's order. Keywords that it does not name keep the order of the call."""
        if not kwargs:
            return args, kwargs
        rest = dict(kwargs)
        given = list(args)
        for name in self.positional[len(args) :]:
            if name not in rest:
                break
            given.append(rest.pop(name))
        known = {n: rest.pop(n) for n in (*self.positional, *self.named) if n in rest}
        return tuple(given), {**known, **rest}

    def names_of(self, structure: Structure, count: int) -> list[str]:
        """What a person calls the tensors in (args, kwargs): `mask`, `batch.x`, `args[2]`."""
        found = paths(structure)
        return [self._friendly(found[i]) for i in range(count)]

    def _friendly(self, path: str) -> str:
        by_place = re.fullmatch(r"0\[(\d+)\](.*)", path)
        if by_place is None:
            return path.removeprefix("1.")
        place = int(by_place[1])
        name = self.positional[place] if place < len(self.positional) else None
        return f"{name or f'args[{place}]'}{by_place[2]}"
