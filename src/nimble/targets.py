"""What the command line calls a TARGET: a network's name, `module:factory` or `file.py:factory`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nimble import zoo
from nimble.errors import InputError


@dataclass(frozen=True)
class Made:
    """A model and arguments to call it with."""

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def make(target: str) -> Made:
    """Build what a TARGET names."""
    check_target(target)
    if ":" not in target:
        model, args = zoo.build(target)
        return Made(target, model, args, {})
    factory = find(target)
    made = factory()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not callable(made[0]):
        raise InputError(
            f"{target}: the factory must return (model, args) or (model, args, kwargs), "
            f"and it returned a {type(made).__name__}"
        )
    model, args = made[0], made[1]
    kwargs = made[2] if len(made) == 3 else {}
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise InputError(f"{target}: args must be a tuple and kwargs a dict")
    return Made(target, model, args, kwargs)


def check_target(target: str) -> None:
    """Refuse at once what no network or file answers to, before anything is built."""
    where, colon, _ = target.rpartition(":")
    if colon:
        if where.endswith(".py") and not Path(where).exists():
            raise InputError(f"{target}: no such Python file as {where}")
    elif target.endswith(".py"):
        raise InputError(f"{target}: name the factory in it too, as in {target}:make")
    else:
        try:
            zoo.parse(target)
        except ValueError as error:
            raise InputError(str(error)) from error


def find(target: str) -> Any:
    """The function that `module:function` or `file.py:function` names."""
    where, _, name = target.rpartition(":")
    module = _from_file(Path(where)) if where.endswith(".py") else _import(where)
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"{target}: {where} has no function {name!r}")
    return found


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"cannot import {name!r}: {error}") from error


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"{path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles of the file look their module up by name.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
