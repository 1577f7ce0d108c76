"""Policies by what a user calls them: a name of POLICIES, `file.py:Class` or `module:Class`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from nimble.cluster.policies import POLICIES
from nimble.cluster.policy import Policy
from nimble.errors import InputError


def make_policy(name: str, lease_s: float | None = None) -> Policy:
    """The policy of that name; with leases of that length, if it has leases."""
    if lease_s is not None and not lease_s > 0:
        raise InputError(f"lease {lease_s:g}: expected seconds above 0")
    make = _found(name)
    try:
        policy = make()
        if lease_s is not None and hasattr(policy, "lease_s"):
            policy = make(lease_s=lease_s)
    except Exception as error:
        raise InputError(f"policy {name}: it cannot be made: {error!r}") from error
    for part in ("rank", "decide"):
        if not callable(getattr(policy, part, None)):
            raise InputError(f"policy {name}: its class has no method {part!r} (docs/cluster.md)")
    if not isinstance(getattr(policy, "name", None), str):
        raise InputError(f"policy {name}: its class has no name; add name = {name!r}")
    made: Policy = policy
    return made


def _found(name: str) -> Callable[..., Any]:
    where, colon, attribute = name.rpartition(":")
    if not colon:
        if name in POLICIES:
            known: Any = POLICIES[name]
            make: Callable[..., Any] = known
            return make
        hint = f"{name}:Class" if name.endswith(".py") else "file.py:Class of your own"
        raise InputError(f"policy {name!r}: expected one of {', '.join(POLICIES)}, or {hint}")
    found = getattr(_module(where), attribute, None)
    if not callable(found):
        raise InputError(f"policy {name}: {where} has no class {attribute!r}")
    cls: Callable[..., Any] = found
    return cls


def _module(where: str) -> ModuleType:
    path = Path(where)
    try:
        if path.suffix != ".py":
            return importlib.import_module(where)
        if not path.exists():
            raise InputError(f"policy in {where}: no such file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Dataclasses of the file look their module up by name; files beside it can be imported.
        sys.modules[path.stem] = module
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
        return module
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"policy in {where}: importing it raised {error!r}") from error
