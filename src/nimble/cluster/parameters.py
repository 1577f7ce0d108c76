"""A policy's parameters, as one says them on the command line: --set lease=300."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.own import load_policy
from nimble.cluster.policy import Policy
from nimble.errors import InputError

Given = tuple[tuple[str, Any], ...]


def parse(text: str) -> tuple[str, Any]:
    """A name and its value.

    >>> parse("lease=300"), parse("limits_gpu_s=[900, 3600]")
    (('lease', 300), ('limits_gpu_s', (900, 3600)))
    """
    name, equals, said = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise InputError(f"--set {text}: expected name=value, such as lease=300")
    return name.strip(), value(said)


def value(text: str) -> Any:
    """A number, on or off, text, null, or a list of these, as YAML has it."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"{text!r}: expected a number, on, off, null or [a list]") from None
    return tuple(read) if isinstance(read, list) else read


def several(text: str) -> list[Any]:
    """Values between commas; those inside brackets belong together.

    >>> several("300,600"), several("[1,2],[3]")
    ([300, 600], [(1, 2), (3,)])
    """
    return [value(part) for part in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text) if part.strip()]


def known(policy: str) -> dict[str, Any]:
    """The parameters that a policy takes, with their defaults."""
    made = load_policy(policy)
    make = POLICIES.get(policy, type(made))
    if type(made).__init__ is object.__init__:
        return {}
    return {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if name != "name" and parameter.default is not inspect.Parameter.empty
    }


def make(policy: str, given: Given) -> tuple[Policy, dict[str, Any]]:
    """The policy with these parameters, and all that it has, those that were not given too."""
    takes = known(policy)
    chosen = {}
    for name, said in given:
        full = find(name, takes)
        if full is None:
            listed = ", ".join(f"{one}={_shown(usual)}" for one, usual in takes.items())
            has = f"it has {listed}" if takes else "it has none"
            raise InputError(f"policy {policy!r} has no parameter {name!r}; {has}")
        chosen[full] = _as(takes[full], said, f"parameter {name} of policy {policy!r}")
    return load_policy(policy, **chosen), takes | chosen


def find(name: str, takes: Iterable[str]) -> str | None:
    """A parameter by its name, or by its name without the unit: `lease` for `lease_s`."""
    return next((full for full in takes if full in (name, f"{name}_s", f"{name}_gpu_s")), None)


def shared(policies: Iterable[str], given: Given) -> dict[str, Given]:
    """For each policy, the given parameters that it has; InputError if none has one of them."""
    takes: Mapping[str, dict[str, Any]] = {policy: known(policy) for policy in policies}
    for name, _ in given:
        if not any(find(name, own) for own in takes.values()):
            listed = "; ".join(f"{p}: {', '.join(own)}" for p, own in takes.items() if own)
            raise InputError(f"no policy has a parameter {name!r}; there are {listed or 'none'}")
    return {
        policy: tuple((name, said) for name, said in given if find(name, own))
        for policy, own in takes.items()
    }


def _as(usual: Any, said: Any, what: str) -> Any:
    """The value in the type of the default."""
    if isinstance(usual, bool):
        right, expected = isinstance(said, bool), "on or off"
    elif isinstance(usual, (int, float)):
        whole = isinstance(usual, int)
        right = isinstance(said, (int, float)) and not isinstance(said, bool)
        right = right and said == said and (not whole or said == int(said))
        expected = "a whole number" if whole else "a number"
        said = type(usual)(said) if right else said
    elif isinstance(usual, (tuple, list)):
        right, expected = isinstance(said, tuple), "a list such as [1, 2]"
    elif isinstance(usual, str):
        right, expected = isinstance(said, str), "text"
    else:
        return said
    if not right:
        raise InputError(f"{what} is {said!r}; expected {expected}, usually {_shown(usual)}")
    return said


def _shown(usual: Any) -> str:
    return f"{usual:g}" if isinstance(usual, float) else repr(usual)
