"""What one iteration of a training job computes and communicates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Profile:
    """A model as the cluster sees it. `skew` is what Tiresias consolidates by.

    >>> resnet50 = Profile("resnet50", 0.348, (25_000_000, 77_000_000), overlap=0.5)
    >>> resnet50.bytes
    102000000
    """

    name: str
    compute_s: float
    """One iteration of the local batch on one reference GPU; does not shrink with more GPUs."""
    buckets: tuple[int, ...]
    """Bytes all-reduced per iteration, in the order in which gradients become ready."""
    overlap: float = 0.0
    """The share of `compute_s` during which communication may run, 0 to 1."""
    skew: float = 0.0
    """The largest tensor's share of all bytes."""
    source: str = ""
    """Where the figures are from."""
    speeds: tuple[tuple[str, float], ...] = ()
    """Relative speed on GPU kinds other than the reference."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a profile has no name")
        if not (self.compute_s > 0 and math.isfinite(self.compute_s)):
            raise self._wrong("compute_s", self.compute_s, "seconds above 0")
        if not all(type(size) is int and size > 0 for size in self.buckets):
            raise self._wrong("buckets", self.buckets, "whole numbers of bytes above 0")
        for name in ("overlap", "skew"):
            if not 0 <= getattr(self, name) <= 1:
                raise self._wrong(name, getattr(self, name), "a share from 0 to 1")
        for kind, speed in self.speeds:
            if not (speed > 0 and math.isfinite(speed)):
                raise self._wrong(f"the speed on {kind}", speed, "a number above 0")

    @property
    def bytes(self) -> int:
        """All-reduced in one iteration."""
        return sum(self.buckets)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        made = asdict(self)
        made["speeds"] = dict(self.speeds)
        return made

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> Profile:
        """The profile in what `as_dict` made, or in a file written by hand."""
        known = set(Profile.__dataclass_fields__)
        called = f"profile {entry.get('name', '(no name)')}"
        if unknown := sorted(set(entry) - known):
            raise InputError(f"{called}: unknown fields {unknown}; expected of {sorted(known)}")
        if missing := sorted({"name", "compute_s", "buckets"} - set(entry)):
            raise InputError(f"{called}: {missing} missing")
        try:
            return Profile(
                name=str(entry["name"]),
                compute_s=float(entry["compute_s"]),
                buckets=tuple(int(size) for size in entry["buckets"]),
                overlap=float(entry.get("overlap", 0.0)),
                skew=float(entry.get("skew", 0.0)),
                source=str(entry.get("source", "")),
                speeds=tuple((str(k), float(v)) for k, v in entry.get("speeds", {}).items()),
            )
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{called}: {error}") from error

    def _wrong(self, what: str, came: object, expected: str) -> InputError:
        return InputError(f"profile {self.name}: {what} is {came}; expected {expected}")


def read_profiles(path: Path) -> list[Profile]:
    """The profiles in a JSON file: one, or a list of them."""
    try:
        loaded = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    entries = loaded if isinstance(loaded, list) else [loaded]
    if not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: expected a profile or a list of profiles")
    try:
        return [Profile.from_dict(entry) for entry in entries]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def write_profile(profile: Profile, path: Path) -> None:
    """A file that `read_profiles` reads."""
    path.write_text(json.dumps(profile.as_dict(), indent=1) + "\n")
