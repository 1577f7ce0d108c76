"""A policy by its name, or a user's own: one class in one file, `my_policy.py:Mine`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from nimble.cluster.policies import POLICIES
from nimble.cluster.policy import Policy
from nimble.errors import InputError


def load_policy(text: str, **parameters: Any) -> Policy:
    """The policy called `text`, or the class in `file.py:Class`, made with these parameters.

    >>> load_policy("dally", lease_s=20.0).name
    'dally'
    """
    path, colon, name = text.rpartition(":")
    if not colon:
        if text not in POLICIES:
            raise InputError(
                f"policy {text!r}: expected one of {', '.join(POLICIES)}, or file.py:Class"
            )
        make = POLICIES[text]
    else:
        make = _class_in(Path(path), name)
    try:
        policy = make(**parameters)
    except TypeError as error:
        raise InputError(f"policy {text!r} cannot be made: {error}") from error
    for needed in ("name", "rank", "decide"):
        if not hasattr(policy, needed):
            raise InputError(
                f"policy {text!r} has no `{needed}`; it needs a name, rank(state, view) and "
                "decide(view, memory, now) (docs/policies.md)"
            )
    checked: Policy = policy
    return checked


def _class_in(path: Path, name: str) -> Any:
    if not path.is_file():
        raise InputError(f"policy {path}:{name}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"nimble_policy_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"policy {path}:{name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Processes that are started for it find it by this name.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"policy {path}:{name}: {path} raised {error!r}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if hasattr(value, "decide")]
        said = ", ".join(classes) or "none"
        raise InputError(f"policy {path}:{name}: {path} has no class {name}; it has {said}")
    return found
