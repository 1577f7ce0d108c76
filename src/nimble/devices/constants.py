"""Constants computed from a model's parameters, shared between plans and kept up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol
from weakref import WeakValueDictionary

import torch

from nimble.graph import Arg, Graph, Ref, Role
from nimble.graph.edit import fill_only
from nimble.graph.show import show_arg
from nimble.rewrite.dead import remove_dead_tasks

Compute = Callable[[Graph, Mapping[str, torch.Tensor]], list[torch.Tensor]]
"""Runs a prologue on tensors by name, and gives its outputs."""
Around = Callable[[], AbstractContextManager[None]]
"""Entered while constants are computed, and written where they lie."""
_OWNED = (Role.PARAMETER, Role.CONSTANT, Role.STATE)
_PORTION, _SMALL = 32 << 20, 4 << 20
"""Bytes of constants that are computed at a time: until they are moved, they are there twice."""


class Room(Protocol):
    """Where constants are to lie."""

    def take_in(self, made: list[torch.Tensor], others: Iterable[torch.Tensor]) -> None:
        """May move the tensors of the list, apart from those that share memory with others."""


class AsTheyLie:
    def __init__(self, spans: Iterable[int]) -> None:
        pass

    def take_in(self, made: list[torch.Tensor], others: Iterable[torch.Tensor]) -> None:
        pass


class Constants:
    """The constants of all plans of one engine. Equal computations give one tensor."""

    def __init__(
        self,
        compute: Compute,
        room: Callable[[Iterable[int]], Room] = AsTheyLie,
        around: Around = nullcontext,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._compute = compute
        self._room = room
        self._around = around
        self._give_back = give_back
        self.frugal = False
        """Rather half as long again than more memory than will be held: for who serves."""
        self._made: WeakValueDictionary[str, torch.Tensor] = WeakValueDictionary()

    def of(
        self, graph: Graph, tensors: Mapping[str, torch.Tensor], *, refresh: bool = False
    ) -> dict[str, torch.Tensor]:
        """The constants of `graph` by name, computed by its prologue from `tensors`.

        `refresh` computes them again, into the memory that plans are bound to already.
        """
        if graph.prologue is None:
            return {}
        with self._around():
            return self._of(graph.prologue, tensors, refresh)

    def _of(
        self, prologue: Graph, tensors: Mapping[str, torch.Tensor], refresh: bool
    ) -> dict[str, torch.Tensor]:
        keys = _keys(prologue, tensors)
        held = {key: made for key in keys.values() if (made := self._made.get(key)) is not None}
        # One output for each computation: what is called twice is folded twice.
        wanted: dict[str, int] = {}
        for v in prologue.outputs:
            key = keys[prologue[v].name]
            if refresh or key not in held:
                wanted.setdefault(key, v)
        missing = list(wanted.values())
        room = self._room([] if refresh else [prologue[v].span for v in missing])
        for part in _portions(prologue, missing, _SMALL if self.frugal else _PORTION):
            results = self._filled(part, tensors, None if refresh else room)
            if self.frugal:
                self._give_back()
            for v, result in zip(part.outputs, results, strict=True):
                key = keys[part[v].name]
                if key in held:
                    held[key].copy_(result)
                else:
                    self._made[key] = held[key] = result
        return {name: held[key] for name, key in keys.items()}

    def _filled(
        self, part: Graph, tensors: Mapping[str, torch.Tensor], room: Room | None
    ) -> list[torch.Tensor]:
        """Its outputs. What they are computed from may have been read for that, and is let go."""
        given = {root.name: tensors[root.name] for root in part.roots(*_OWNED)}
        results = self._compute(part, given)
        if room is not None:
            room.take_in(results, given.values())
        return results

    def keep_only(self, kept: Iterable[torch.Tensor]) -> None:
        """Forget the others, which are not up to date with the parameters any more."""
        ids = {id(tensor) for tensor in kept}
        for key, tensor in list(self._made.items()):
            if id(tensor) not in ids:
                del self._made[key]


def _portions(prologue: Graph, outputs: Iterable[int], portion: int) -> Iterator[Graph]:
    """What computes these outputs, some of them at a time."""
    names: set[str] = set()
    held = 0
    for v in outputs:
        names.add(prologue[v].name)
        held += prologue[v].span
        if held >= portion:
            yield _filling(prologue, names)
            names, held = set(), 0
    if names:
        yield _filling(prologue, names)


def _filling(prologue: Graph, names: set[str]) -> Graph:
    part = fill_only(prologue, names)
    assert part is not None
    return remove_dead_tasks(part)


def _keys(prologue: Graph, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """For every output's name: a digest of the computation and of the tensors it starts from."""
    digests: dict[int, str] = {}

    def digest(id: int) -> str:
        value = prologue[id]
        if value.base is not None:
            return f"{digest(value.base)}+{value.offset}:{value.type}"
        if id not in digests:
            digests[id] = f"{value.name}@{_id_of(tensors, value.name)}:{value.type}"
        return digests[id]

    def text(arg: Arg) -> str:
        if isinstance(arg, Ref):
            return digest(arg.id)
        if isinstance(arg, tuple):
            return f"[{', '.join(map(text, arg))}]"
        return f"{type(arg).__name__} {show_arg(arg)}"

    for task in prologue.tasks:
        called = [text(a) for a in task.args] + [f"{k}={text(a)}" for k, a in task.kwargs]
        said = hashlib.sha256(f"{task.op}({', '.join(called)})".encode()).hexdigest()
        for place, id in enumerate(task.results):
            if id is not None:
                digests[id] = f"{said}.{place}:{prologue[id].type}"
    return {prologue[id].name: digest(id) for id in prologue.outputs}


def _id_of(tensors: Mapping[str, torch.Tensor], name: str) -> int:
    """Parameters of the module go by name; a constant of one trace must not be taken for that of
    another, so those go by identity."""
    return id(tensors[name]) if name.startswith("constant.") else 0
