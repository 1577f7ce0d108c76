"""One look at a model and at the tensors of its plans, to notice later that they are others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.utils.hooks import RemovableHandle

from nimble import _aten
from nimble.capture import Target
from nimble.capture.contents import Snapshot
from nimble.plan import Plan


class Look:
    """Taken in the order in which a plan follows a model: first what the modules are made of, then,
    by `take_in`, the tensors that were found there. So what another thread changes in between is
    seen as a change."""

    def __init__(self, target: Target | None) -> None:
        self._target = target
        self._registered = RemovableHandle.next_id
        """How many hooks of any kind PyTorch had counted."""
        self._hooks = target.hooks() if target is not None else ()
        self._held, loose = target.watched() if target is not None else ([], [])
        self._snapshot = Snapshot(loose) if loose else None
        self._places = _aten.Watch([], self._held)
        self.watch = self._places
        """Of tensors and of places that hold something."""
        self.copied: frozenset[int] = frozenset()
        """Tensors, by id, that the plans have copies of."""

    def take_in(self, plans: Iterable[tuple[Plan, Mapping[str, torch.Tensor]]]) -> None:
        """Watch every tensor that a plan reads when bound to these."""
        copied: dict[int, torch.Tensor] = {}
        used: dict[int, torch.Tensor] = {}
        for plan, tensors in plans:
            prologue = plan.graph.prologue
            sources = {root.name for root in prologue.roots()} if prologue is not None else set()
            read = {root.name for root in plan.graph.roots()}
            for name, tensor in tensors.items():
                if name in sources:
                    copied[id(tensor)] = tensor
                if name in read or name not in sources:
                    used[id(tensor)] = tensor
        contents = self._target is not None and self._target.contents
        self.watch = _aten.Watch(list(copied.values()), self._held, list(used.values()), contents)
        self.copied = frozenset(copied)

    def unlike(self) -> bool:
        """Whether anything that the `watch` does not see may be another than it was."""
        return self._registered != RemovableHandle.next_id or (
            self._snapshot is not None and self._snapshot.changed()
        )

    def other_modules(self) -> bool:
        """Whether anything but the tensors' contents is another than it was."""
        return (
            self._places.changed()
            or self._other_hooks()
            or (self._snapshot is not None and self._snapshot.changed())
        )

    def _other_hooks(self) -> bool:
        """Whether any of the hooks that were registered since the last look is one of ours."""
        if self._registered == RemovableHandle.next_id:
            return False
        self._registered = RemovableHandle.next_id
        return self._target is not None and self._hooks != self._target.hooks()
