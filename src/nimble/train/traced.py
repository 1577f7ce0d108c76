"""Optimizers whose own code is captured, for want of a rule written here.

Its numbers are inputs of the plan, as the number of steps is. Those that the code cannot take as
tensors are part of it: where one of them changes, another plan is made. So are the signs of all,
since terms are left out where a number is 0.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from nimble.capture.trace import unlogged
from nimble.errors import CaptureError
from nimble.train.rules import Group, Terms, times

_HOW = {"foreach": False, "fused": False, "capturable": True, "differentiable": False}
"""How the update is to be written: one parameter after the other, no number read from a tensor."""

_REHEARSALS = 3


class Traced:
    """An optimizer that makes its state apart from its step, as all of torch.optim do that need no
    closure."""

    doubles, alike = True, False

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._known: dict[tuple[Terms, int], tuple[str, ...]] = {}
        self._keys = sorted(optimizer.defaults.keys() - _HOW.keys() - {"lr"})
        first = optimizer.param_groups[0]
        self.counts = "step" in self._begun(first, first["params"][0])
        self._inputs: frozenset[str] = frozenset()
        """Which of the keys hold numbers that are inputs."""
        if not _step_of(optimizer).__module__.startswith("torch.optim."):
            self._rehearse()
        self._inputs = frozenset(key for key in self._keys if self._takes_tensors(first, key))

    def terms(self, group: Group) -> Terms:
        return tuple(
            (key, _each(_sign if key in self._inputs else _plain, group[key])) for key in self._keys
        )

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
        more = [_flat(group[key]) for key in self._keys if key in self._inputs]
        return float(group["lr"]), float(step - 1), *(float(n) for some in more for n in some)

    def update(
        self,
        terms: Terms,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        numbers: Sequence[torch.Tensor],
    ) -> None:
        rate, taken, *more = numbers
        mine = dict(state)
        if self.counts:
            mine["step"] = taken.clone()
        rest = iter(more)
        group = {
            key: _each(lambda _: next(rest), value) if key in self._inputs else value
            for key, value in terms
        }
        signs = [sign for key, value in terms if key in self._inputs for sign in _flat(value)]
        known = _TensorsForNumbers(list(zip(more, signs, strict=True)))
        with patch.object(torch.compiler, "_is_compiling_flag", True), known:
            try:
                self._step({**group, "lr": rate}, parameter, gradient, mine)
            except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
                raise CaptureError(
                    f"{type(self._optimizer).__name__} reads numbers out of tensors while it "
                    "updates, so no schedule can be made of it ahead of time; use another "
                    "optimizer, or keep your own loop around "
                    'torch.compile(model, backend="nimble")'
                ) from error
        if late := mine.keys() - state.keys() - {"step"}:
            raise CaptureError(
                f"{type(self._optimizer).__name__} makes {', '.join(sorted(late))} of its state in "
                "the middle of a step and not in _init_group, so its first step is another than "
                "those that follow; make it there, use another optimizer, or keep your own loop "
                'around torch.compile(model, backend="nimble")'
            )
        for key, held in state.items():
            if mine[key] is not held:
                held.copy_(mine[key])

    def _takes_tensors(self, group: Group, key: str) -> bool:
        """Whether the numbers under this key may be tensors: whether an update can be traced."""
        there = _flat(group[key])
        if not all(type(n) in (int, float) or isinstance(n, torch.Tensor) for n in there):
            return False
        # All terms are there.
        group = {**group, key: _each(lambda _: 1.0, group[key])}
        self._inputs = frozenset([key])
        try:
            with FakeTensorMode(), unlogged():
                parameter, gradient = (torch.empty(group["params"][0].shape) for _ in range(2))
                state = self._begun(group, parameter)
                numbers = torch.empty(2 + len(there), dtype=torch.float64).unbind()
                self.update(self.terms(group), parameter, gradient, state, numbers)
        except Exception:  # As many kinds as there are ways to use a number.
            return False
        return True

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
        if not state:
            return {}  # It keeps none.
        raise CaptureError(
            f"the step of {type(self._optimizer).__name__} makes its state itself, and not in "
            "_init_group, so its first step is another than those that follow; make it there, or "
            'keep your own loop around torch.compile(model, backend="nimble")'
        )

    def _step(
        self,
        group: Group,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, torch.Tensor],
        begin: Callable[[torch.optim.Optimizer], Callable[..., None]] | None = None,
    ) -> None:
        """The optimizer's own step, for one parameter."""
        alias = parameter.detach()
        alias.grad = gradient.detach()
        twin = self._twin([{**group, "params": [alias]}])
        twin.state = defaultdict(dict, {alias: state})
        if begin is not None:
            vars(twin)["_init_group"] = begin(twin)
        _take_a_step(twin)

    def _twin(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The same optimizer for other parameters."""
        twin = object.__new__(type(self._optimizer))
        for name, value in vars(self._optimizer).items():
            mine = copy.copy(value) if isinstance(value, list | dict | set) else value
            vars(twin)[name] = mine
        how = {key: value for key, value in _HOW.items() if key in twin.defaults}
        twin.param_groups = [{**group, **how} for group in groups]
        twin.state = defaultdict(dict)
        # As it is written: without the hooks and the profiler's marks, which are for every step
        # that is taken.
        vars(twin).update(_optimizer_step_pre_hooks={}, _optimizer_step_post_hooks={})
        return twin

    def _rehearse(self) -> None:
        """Refuse code of the user's own that does something else for one parameter at a time than
        for all of them, or in its second step than in its first."""
        draws = torch.Generator().manual_seed(0)

        def drawn(like: torch.Tensor) -> torch.Tensor:
            size = [min(n, 2) for n in like.shape]
            return torch.rand(size, dtype=torch.float64, generator=draws).to(like.dtype)

        groups: list[dict[str, Any]] = [
            {**group, "params": [drawn(p) for p in group["params"]]}
            for group in self._optimizer.param_groups
        ]
        together = self._twin(groups)
        before = _plain_attributes(together)
        apart: list[tuple[Group, torch.Tensor, torch.Tensor, dict[str, Any]]] = [
            (group, p, p.clone(), {}) for group in groups for p in group["params"]
        ]
        same = True
        for _ in range(_REHEARSALS):
            with patch.object(torch.compiler, "_is_compiling_flag", True):
                for group, parameter, alone, state in apart:
                    parameter.grad = drawn(parameter)
                    self._step(group, alone, parameter.grad.clone(), state)
                _take_a_step(together)
            same &= all(torch.allclose(p, alone, equal_nan=True) for _, p, alone, _ in apart)
        if not same or _plain_attributes(together) != before:
            raise CaptureError(
                f"the step of {type(self._optimizer).__name__} is your own, and here it is run for "
                "each parameter by itself and always in the same way; it looks at several at once, "
                "or counts in its attributes. Use clip_norm= for a norm of all gradients, do the "
                "rest between steps, or keep your own loop around "
                'torch.compile(model, backend="nimble")'
            )


def _step_of(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """As it is written."""
    step: Callable[..., Any] = inspect.unwrap(type(optimizer).step)
    return step


def _take_a_step(optimizer: torch.optim.Optimizer) -> None:
    with patch.object(torch.autograd.profiler, "record_function", lambda _: nullcontext()):
        _step_of(optimizer)(optimizer)


def _plain_attributes(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    plain = (int, float, str, bool, tuple, type(None))
    return {name: value for name, value in vars(optimizer).items() if isinstance(value, plain)}


class _BegunError(Exception):
    """The state is there."""


class _TensorsForNumbers(TorchFunctionMode):
    """Lets tensors stand where torch takes numbers only: for `alpha=`, `value=` and `weight=`, and
    in questions whether one of those `known` is 0."""

    def __init__(self, known: Sequence[tuple[torch.Tensor, float]]) -> None:
        super().__init__()
        self._known = known
        """With the sign of each."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", "").strip("_"), dict(kwargs or {})
        if name in _COMPARISONS and type(args[1]) in (int, float) and args[1] == 0:
            for tensor, sign in self._known:
                if tensor is args[0]:
                    return _COMPARISONS[name](sign, 0)
        wide = (a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
        like = next((a for a in wide if a.dim()), None)
        if like is not None:  # As PyTorch does, but kernels are for operands of one kind.
            args = tuple(_fitting(a, like) for a in args)
            given = {key: _fitting(a, like) for key, a in given.items()}
        if name == "lerp" and isinstance(args[2], torch.Tensor):
            held, end, weight = args
            more = times(weight, end - held)
        else:
            key = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}.get(name)
            factor = given.get(key) if key is not None else None
            if not isinstance(factor, torch.Tensor):
                return func(*args, **given)
            held, *others = args
            more = times(factor, others[0])
            if len(others) == 2:
                more = more * others[1] if name == "addcmul" else more / others[1]
            if name == "sub":
                more = -more
        more = more.to(held.dtype)  # Where nothing has dimensions.
        return held.add_(more) if func.__name__.endswith("_") else held + more


def _fitting(value: Any, like: torch.Tensor) -> Any:
    """A number as a tensor of this kind, which it would be turned into; half a tensor's precision
    is reckoned with in float32."""
    if isinstance(value, torch.Tensor) and not value.dim() and value.is_floating_point():
        return value.to(torch.promote_types(like.dtype, torch.float32))
    return value


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """What is in a tuple or list, changed; or the value itself."""
    if isinstance(value, tuple | list):
        return tuple(_each(change, item) for item in value)
    return change(value)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [number for item in value for number in _flat(item)]
    return [value]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)
