"""Constants computed from a model's parameters, shared between plans and kept up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakValueDictionary

import torch

from nimble.graph import Arg, Graph, Ref
from nimble.graph.edit import fill_only
from nimble.graph.show import show_arg
from nimble.rewrite.dead import remove_dead_tasks

Compute = Callable[[Graph, Mapping[str, torch.Tensor]], list[torch.Tensor]]
"""Runs a prologue on tensors by name, and gives its outputs."""
Gather = Callable[[list[torch.Tensor], Iterable[torch.Tensor]], None]
"""May move the tensors of a list, apart from those that share memory with others."""


Around = Callable[[], AbstractContextManager[None]]
"""Entered while constants are computed, and written where they lie."""


def _as_they_lie(made: list[torch.Tensor], others: Iterable[torch.Tensor]) -> None:
    pass


class Constants:
    """The constants of all plans of one engine. Equal computations give one tensor."""

    def __init__(
        self, compute: Compute, gather: Gather = _as_they_lie, around: Around = nullcontext
    ) -> None:
        self._compute = compute
        self._gather = gather
        self._around = around
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
        made = {name: self._made.get(key) for name, key in keys.items()}
        missing = [v for v in prologue.outputs if refresh or made[prologue[v].name] is None]
        part = fill_only(prologue, {prologue[v].name for v in missing})
        results: list[torch.Tensor] = []
        if part is not None:
            part = remove_dead_tasks(part)
            results = self._compute(part, tensors)
        if not refresh:
            self._gather(results, tensors.values())
        found = {name: kept for name, kept in made.items() if kept is not None}
        names = [part[v].name for v in part.outputs] if part is not None else []
        for name, result in zip(names, results, strict=True):
            if name in found:
                found[name].copy_(result)
            else:
                self._made[keys[name]] = found[name] = result
        return found

    def keep_only(self, kept: Iterable[torch.Tensor]) -> None:
        """Forget the others, which are not up to date with the parameters any more."""
        ids = {id(tensor) for tensor in kept}
        for key, tensor in list(self._made.items()):
            if id(tensor) not in ids:
                del self._made[key]


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
