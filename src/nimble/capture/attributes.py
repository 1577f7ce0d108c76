"""Models that keep state in Python attributes, which a replay would not update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from nimble.errors import CaptureError

_PLAIN = (bool, int, float, str, torch.Tensor)
_CONTAINERS = (list, dict, set)
_INTERNAL = vars(nn.Module()).keys()
Attributes = list[dict[str, tuple[Any, Any]]]
"""For every module: attribute → its value, and a copy of what is in it if it is a container."""
_HOOKED = (
    ". If a hook of torch.nn.utils does it (weight_norm, spectral_norm, prune): remove it before "
    "compiling (remove_weight_norm, prune.remove), or use torch.nn.utils.parametrizations"
)


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
    tensors = any(isinstance(v, torch.Tensor) or _leaked(v) for v in changed.values())
    again = module if tensors else trace()
    if tensors or _changed(modules, after) or str(again.graph) != str(module.graph):
        _restore(modules, before)
        raise CaptureError(
            f"the model assigns {', '.join(changed)} in forward, which a replay would not repeat; "
            "make it a buffer (register_buffer), or compute it outside of forward"
            + (_HOOKED if any(module._forward_pre_hooks for module in modules) else "")
        )
    return again


def _attributes(modules: Sequence[nn.Module]) -> Attributes:
    return [
        {k: (v, v.copy() if type(v) in _CONTAINERS else None) for k, v in vars(module).items()}
        for module in modules
    ]


def _changed(modules: Sequence[nn.Module], before: Attributes) -> dict[str, Any]:
    """Attributes that hold another number, text or tensor than before, and containers that have
    grown, shrunk or, as tuples too, hold tensors of the trace; by name."""
    found = {}
    for module, old in zip(modules, before, strict=True):
        for key, now in vars(module).items():
            was, contents = old.get(key, (None, None))
            if type(now) in _CONTAINERS and key not in _INTERNAL:
                differs = (now is was and len(now) != len(contents)) or _leaked(now)
            elif isinstance(now, tuple):
                differs = _leaked(now)
            else:
                same = now is was or (type(now) is type(was) and now == was)
                differs = isinstance(now, _PLAIN) and (
                    now is not was if isinstance(now, torch.Tensor) else not same
                )
            if differs:
                found[f"{type(module).__name__}.{key}"] = now
    return found


def _leaked(value: Any) -> bool:
    """Whether a tensor of the trace is in it, which would break the model when it runs eagerly."""
    if isinstance(value, dict):
        return any(map(_leaked, value.values()))
    if isinstance(value, list | tuple | set):
        return any(map(_leaked, value))
    return isinstance(value, FakeTensor | FunctionalTensor)


def _restore(modules: Sequence[nn.Module], before: Attributes) -> None:
    for module, old in zip(modules, before, strict=True):
        vars(module).clear()
        for key, (value, contents) in old.items():
            if contents is not None:
                value.clear()
                value.extend(contents) if isinstance(value, list) else value.update(contents)
            vars(module)[key] = value
