"""Which rule an optimizer follows."""

from __future__ import annotations

import inspect

import torch

from nimble.errors import InputError
from nimble.train.rules import Adam, Rule, Sgd

_RULES: dict[type, Rule] = {
    torch.optim.SGD: Sgd(),
    torch.optim.Adam: Adam(),
    torch.optim.AdamW: Adam(),
}


def rule_of(optimizer: torch.optim.Optimizer) -> Rule:
    # Schedulers wrap it, and say so.
    step = inspect.unwrap(optimizer.step)
    if getattr(step, "__func__", step) is not inspect.unwrap(type(optimizer).step):
        raise InputError(
            f"the step of this {type(optimizer).__name__} was replaced by a function of its own, "
            "and a replay would not call it; put the original back, or keep your own loop around "
            'torch.compile(model, backend="nimble")'
        )
    rule = next(
        (_RULES[kind] for kind in type(optimizer).__mro__ if _is_like(optimizer, kind)), None
    )
    if rule is None and hasattr(optimizer, "_init_group"):
        # Imports SymPy: a second that other callers are spared.
        from nimble.train.traced import Traced

        return Traced(optimizer)
    if rule is None:
        raise InputError(
            f"{type(optimizer).__name__} makes its state in the middle of a step, or needs a "
            "closure or sparse gradients (it has no _init_group, which those of torch.optim have "
            "that can be scheduled ahead of time); use one of these, or keep your own loop around "
            'torch.compile(model, backend="nimble")'
        )
    return rule


def _is_like(optimizer: torch.optim.Optimizer, kind: type) -> bool:
    """Whether it updates as one of those with a rule: it is one, or derived from one without a step
    or a state of its own."""
    mine = type(optimizer)
    return kind in _RULES and all(
        inspect.unwrap(getattr(mine, name)) is inspect.unwrap(getattr(kind, name))
        for name in ("step", "_init_group")
    )
