"""Profiles that come with the package, each with the source of its figures."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from types import MappingProxyType

from nimble.cluster.profile import Profile
from nimble.errors import InputError


@cache
def bundled() -> MappingProxyType[str, Profile]:
    """All of them, by name.

    >>> bundled()["resnet50"].bytes
    102228128
    """
    found: dict[str, Profile] = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            for entry in json.loads(file.read_text()):
                profile = Profile.from_dict(entry)
                found[profile.name] = profile
    return MappingProxyType(found)


def find_profile(name: str) -> Profile:
    """The bundled profile of that name."""
    profiles = bundled()
    if name not in profiles:
        raise InputError(f"profile {name!r}: expected one of {', '.join(profiles)}")
    return profiles[name]
