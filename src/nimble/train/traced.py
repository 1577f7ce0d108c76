"""Optimizers whose own code is captured, for want of a rule written here.

Learning rate and number of steps are inputs of the plan. The other numbers are part of it: where
one of them changes, another plan is made.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from nimble.errors import CaptureError
from nimble.train.rules import Group, Terms

_HOW = {"foreach": False, "fused": False, "capturable": True, "differentiable": False}
"""How the update is to be written: one parameter after the other, no number read from a tensor."""


class Traced:
    """An optimizer that makes its state apart from its step, as all of torch.optim do that need no
    closure."""

    doubles = True

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._known: dict[tuple[Terms, int], tuple[str, ...]] = {}
        first = optimizer.param_groups[0]
        self.counts = "step" in self._begun(first, first["params"][0])

    def terms(self, group: Group) -> Terms:
        keys = sorted(self._optimizer.defaults.keys() - _HOW.keys() - {"lr"})
        return tuple((key, _hashable(group[key])) for key in keys)

    def states(self, terms: Terms, parameter: torch.Tensor) -> tuple[str, ...]:
        asked = terms, parameter.dim()
        names = self._known.get(asked)
        if names is None:
            small = torch.zeros((1,) * parameter.dim())
            begun = self._begun({**dict(terms), "lr": 1e-3}, small)
            names = self._known[asked] = tuple(sorted(begun.keys() - {"step"}))
        return names

    def fresh(self, group: Group, parameter: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return self._begun(group, parameter)

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        return float(group["lr"]), float(step - 1)

    def update(
        self,
        terms: Terms,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        numbers: Sequence[torch.Tensor],
    ) -> None:
        rate, taken = numbers
        mine = dict(state)
        if self.counts:
            mine["step"] = taken.clone()
        with patch.object(torch.compiler, "_is_compiling_flag", True), _TensorsForNumbers():
            try:
                self._step({**dict(terms), "lr": rate}, parameter, gradient, mine)
            except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
                raise CaptureError(
                    f"{type(self._optimizer).__name__} reads numbers out of tensors while it "
                    "updates, so no schedule can be made of it ahead of time; use another "
                    "optimizer, or keep your own loop around "
                    'torch.compile(model, backend="nimble")'
                ) from error

    def _begun(self, group: Group, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """The state of a parameter that has taken no step."""

        def begin(twin: torch.optim.Optimizer) -> Callable[..., None]:
            def init_group(*args: Any) -> None:
                type(twin)._init_group(twin, *args)  # type: ignore[attr-defined]
                raise _BegunError

            return init_group

        state: dict[str, torch.Tensor] = {}
        try:
            self._step(group, parameter, torch.zeros_like(parameter), state, begin)
        except _BegunError:
            return state
        raise AssertionError("an optimizer's step began without _init_group")

    def _step(
        self,
        group: Group,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, torch.Tensor],
        begin: Callable[[torch.optim.Optimizer], Callable[..., None]] | None = None,
    ) -> None:
        """The optimizer's own step, for one parameter."""
        twin = copy.copy(self._optimizer)
        how = {key: value for key, value in _HOW.items() if key in twin.defaults}
        alias = parameter.detach()
        alias.grad = gradient.detach()
        twin.param_groups = [{**group, **how, "params": [alias]}]
        twin.state = defaultdict(dict, {alias: state})
        if begin is not None:
            vars(twin)["_init_group"] = begin(twin)
        # As it is written: without the hooks, which are for every step that is taken.
        inspect.unwrap(type(twin).step)(twin)


class _BegunError(Exception):
    """The state is there."""


class _TensorsForNumbers(TorchFunctionMode):
    """Lets `alpha=` and `value=` be tensors, which torch takes from users as numbers only."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", "").removesuffix("_"), dict(kwargs or {})
        key = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}.get(name)
        factor = given.get(key) if key is not None else None
        if not isinstance(factor, torch.Tensor):
            return func(*args, **given)
        held, *others = args
        more = factor * others[0]
        if len(others) == 2:
            more = more * others[1] if name == "addcmul" else more / others[1]
        if name == "sub":
            more = -more
        return held.add_(more) if func.__name__.endswith("_") else held + more


def _hashable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item()
    return tuple(map(_hashable, value)) if isinstance(value, tuple | list) else value
