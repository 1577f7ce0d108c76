"""What a model must not do while it is traced, since no replay would do it again."""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from nimble.errors import CaptureError

_SEEDING = ("manual_seed", "seed", "set_rng_state", "fork_rng")


@contextlib.contextmanager
def seeding_refused() -> Iterator[None]:
    """Raise CaptureError where this thread seeds PyTorch's generator, or puts it back."""
    thread = threading.get_ident()
    places = [(m, name) for m in (torch, torch.random) for name in _SEEDING if hasattr(m, name)]
    before = [getattr(module, name) for module, name in places]

    def refusing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return function(*args, **kwargs)
            raise CaptureError(
                f"the model calls torch.{name}, and a replay only draws from the generator as it "
                "finds it; seed it outside of the model, before the call"
            )

        return refuse

    for (module, name), function in zip(places, before, strict=True):
        setattr(module, name, refusing(name, function))
    seed = torch.initial_seed()
    try:
        yield
    finally:
        for (module, name), function in zip(places, before, strict=True):
            setattr(module, name, function)
    if torch.initial_seed() != seed:
        raise CaptureError(
            "the model, or another thread while it was traced, seeds PyTorch's generator, which a "
            "replay would not repeat; seed it outside of the model, before the call"
        )


def without_python_randomness(trace: Callable[[], torch.fx.GraphModule]) -> torch.fx.GraphModule:
    """What `trace` gives, or CaptureError if it draws random numbers in Python."""
    before = _python_states()
    module = trace()
    if _python_states() == before:
        return module
    if threading.active_count() > 1:  # Was it another thread? It will hardly be so twice.
        before = _python_states()
        module = trace()
        if _python_states() == before:
            return module
    raise CaptureError(
        "the model draws from Python's `random` or from `numpy.random`, which a replay would not "
        "repeat; draw with torch.rand or torch.randint, or outside of the model, and pass it in. "
        "(Or another thread draws all the time, a loader's say: compile while it rests)"
    )


def _python_states() -> tuple[Any, ...]:
    return random.getstate(), repr(np.random.get_state())


class Kept:
    """Notices tensors of a trace that outlive it."""

    def __init__(self) -> None:
        self._seen: list[tuple[weakref.ref[torch.Tensor], str]] = []

    def note(self, result: Any, line: str) -> None:
        if isinstance(result, FunctionalTensor):
            self._seen.append((weakref.ref(result), line))
        elif isinstance(result, list | tuple):
            for item in result:
                self.note(item, line)

    def refuse(self) -> None:
        """Raise CaptureError if somebody kept a tensor."""
        if not any(seen() is not None for seen, _ in self._seen):
            return
        gc.collect()
        for seen, line in self._seen:
            if seen() is not None:
                raise CaptureError(
                    "a hook, a closure or a cache outside of the modules kept a tensor of the "
                    f"trace{f', made at {line}' if line else ''}. A replay would not renew it: "
                    "remove the hook or the cache, or return the tensor from the model"
                )
