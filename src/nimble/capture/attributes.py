"""Models that keep state in Python attributes, which a replay would not update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from nimble.errors import CaptureError

_PLAIN = (bool, int, float, str, torch.Tensor)
Attributes = list[dict[str, Any]]


def without_python_state(
    modules: Sequence[nn.Module], trace: Callable[[], torch.fx.GraphModule]
) -> torch.fx.GraphModule:
    """What `trace` gives, or CaptureError if it depends on attributes that tracing changes.

    Some libraries set themselves up in the first call. So where attributes have changed, the model
    is traced again: if they stay and the trace is the same, the first call was only that.
    """
    before = _attributes(modules)
    module = trace()
    changed = _changed(modules, before)
    if not changed:
        return module
    after = _attributes(modules)
    tensors = [name for name, value in changed.items() if isinstance(value, torch.Tensor)]
    again = module if tensors else trace()
    if tensors or _changed(modules, after) or str(again.graph) != str(module.graph):
        _restore(modules, before)
        raise CaptureError(
            f"the model assigns {', '.join(changed)} in forward, which a replay would not repeat; "
            "make it a buffer (register_buffer), or compute it outside of forward"
        )
    return again


def _attributes(modules: Sequence[nn.Module]) -> Attributes:
    return [dict(vars(module)) for module in modules]


def _changed(modules: Sequence[nn.Module], before: Attributes) -> dict[str, Any]:
    """Attributes that hold another number, text or tensor than before, by name."""
    found = {}
    for module, old in zip(modules, before, strict=True):
        for key, now in vars(module).items():
            was = old.get(key)
            if now is was or not isinstance(now, _PLAIN):
                continue
            if isinstance(now, torch.Tensor) or type(now) is not type(was) or now != was:
                found[f"{type(module).__name__}.{key}"] = now
    return found


def _restore(modules: Sequence[nn.Module], before: Attributes) -> None:
    for module, old in zip(modules, before, strict=True):
        vars(module).clear()
        vars(module).update(old)
