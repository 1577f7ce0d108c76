"""What is captured, and everything by which a capture could become out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from nimble.capture.contents import Loose, Place, entries, frozen, look_into
from nimble.capture.parameters import Parameters
from nimble.capture.reach import Reached
from nimble.errors import CaptureError


@dataclass(frozen=True)
class Target:
    """What is captured: a function, and the modules whose tensors it uses."""

    function: Callable[..., Any]
    modules: dict[str, nn.Module]
    reached: Reached | None = None
    """How the modules of a function were found."""

    @staticmethod
    def of(model: Any) -> Target:
        if isinstance(model, ExportedProgram):
            model = model.module(check_guards=False)
        if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            raise CaptureError(
                "cannot compile what torch.jit.script or torch.jit.trace made, since it runs "
                "outside of Python; compile the model that it was made from"
            )
        if isinstance(model, nn.Module):
            return Target(model, {"": model})
        if not callable(model):
            raise CaptureError(
                f"cannot compile a {type(model).__name__}; expected an nn.Module, a function or "
                "an ExportedProgram"
            )
        reached = Reached(model)
        return Target(model, reached.modules, reached)

    @property
    def contents(self) -> bool:
        """Whether tensors are read in every call, to see writes that PyTorch does not count."""
        return False

    @property
    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """Operators to be traced as others."""
        return {}

    def renewed(self) -> Target:
        """The same function, with the modules that it reaches now."""
        return self if self.reached is None else Target.of(self.function)

    def parameters(self) -> Parameters:
        """What the arguments are called. Hooks see how a call is spelled, so a module that has some
        is called as it was spelled."""
        model = self.function
        if not isinstance(model, nn.Module):
            return Parameters.of(model)
        everywhere = nn.modules.module
        hooked = (
            everywhere._global_forward_pre_hooks
            or everywhere._global_forward_hooks
            or model._forward_pre_hooks
            or model._forward_hooks
        )
        own_call = type(model).__call__ is not nn.Module.__call__
        return Parameters() if hooked or own_call else Parameters.of(model.forward)

    def named_tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by qualified name; one that is shared goes by its first name."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self.modules.items():
            dot = f"{prefix}." if prefix else ""
            for name, tensor in all_names(module):
                found.setdefault(id(tensor), (dot + name, tensor))
        return dict(found.values())

    def watched(self) -> tuple[list[Place], list[Loose]]:
        """Whatever may matter to a trace if it changes: parameters, buffers, submodules, hooks,
        attributes and what is in them, and what a function reaches."""
        places: list[Place] = []
        loose: list[Loose] = []
        values: list[Any] = []
        for module in self.submodules():
            for table in (module._parameters, module._buffers, module._modules):
                if table or not _is_closed(module):
                    places += entries(table)
            for key, value in _attributes(module):
                places.append((vars(module), key, value))
                # What PyTorch's own modules keep for themselves is not edited in place.
                if not (key.startswith("_") and type(module).__module__.startswith("torch.")):
                    values.append(value)
        for hooks in filter(None, self._hooks()):
            places.append((hooks, "", None))
            loose.append(hooks)
        if self.reached is not None:
            places += self.reached.places
            loose += self.reached.globals
            loose += self.reached.cells
            values += [value for _, value in self.reached.values()]
        more, inside = look_into(values)
        return places + more, loose + inside

    def fingerprint(self) -> tuple[Any, ...]:
        """What a capture depends on besides the types of tensors: equal if a plan still fits."""
        first: dict[int, str] = {}
        named = []
        for prefix, root in self.modules.items():
            for name, tensor in all_names(root):
                named.append((prefix, name, first.setdefault(id(tensor), f"{prefix}.{name}")))
        modules = self.submodules()
        values = [a for m in modules for a in _attributes(m) if a[0] != "training"]
        if self.reached is not None:
            values += self.reached.values()
        seen: dict[int, Any] = {}
        attributes = tuple((key, frozen(value, first, seen)) for key, value in values)
        return tuple(named), modules, attributes, self.hooks()

    def submodules(self) -> tuple[nn.Module, ...]:
        return tuple(m for root in self.modules.values() for m in root.modules())

    def hooks(self) -> tuple[tuple[int, ...], ...]:
        """Which forward hooks are registered, and where. Whoever registers one raises PyTorch's
        count of them, so `watched` leaves out the tables that are empty."""
        return tuple(tuple(map(id, table.values())) for table in self._hooks())

    def _hooks(self) -> list[dict[Any, Any]]:
        if not self.modules:
            return []
        everywhere = nn.modules.module
        own = [(m._forward_pre_hooks, m._forward_hooks) for m in self.submodules()]
        hooks = (everywhere._global_forward_pre_hooks, everywhere._global_forward_hooks)
        return [table for tables in (hooks, *own) for table in tables]

    @property
    def training(self) -> tuple[bool, ...]:
        """The train/eval mode of every submodule."""
        return tuple(m.training for m in self.submodules())


def what_changed(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    """In what two fingerprints differ, in words."""
    if before[2] != now[2] and len(before[2]) == len(now[2]):
        differ = (a[0] for a, b in zip(before[2], now[2], strict=True) if a != b)
        return "what it holds as " + ", ".join(map(repr, dict.fromkeys(differ)))
    parts = ("its parameters or buffers", "its submodules", "its attributes", "its hooks")
    return ", ".join(p for p, a, b in zip(parts, before, now, strict=True) if a != b)


def all_names(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers; one that is shared, under all its names."""
    for kind in (module.named_parameters, module.named_buffers):
        yield from kind(remove_duplicate=False)


_INTERNAL = vars(nn.Module()).keys() - {"training"}


def _is_closed(module: nn.Module) -> bool:
    """One of PyTorch's own, which uses the tensors and modules it was made with and no others."""
    package = type(module).__module__
    return package.startswith("torch.nn.modules.") and not package.endswith(".container")


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((k, v) for k, v in vars(module).items() if k not in _INTERNAL)
