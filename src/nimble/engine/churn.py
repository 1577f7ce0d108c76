"""Tells once when plans are dropped and made again so often that compiling is the rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from nimble.errors import RecompileWarning


class Churn:
    """Counts how often plans were dropped, and warns when that is `patience` times."""

    def __init__(self, name: str, patience: int) -> None:
        self._name = name
        self._patience = patience
        self._dropped = 0

    def drop(self, why: Callable[[], str]) -> None:
        self._dropped += 1
        if self._dropped == self._patience:
            warnings.warn(
                f"{self._name}: plans were dropped {self._dropped} times so far, and calls like "
                f"theirs compile again: {why()}",
                RecompileWarning,
                stacklevel=2,
            )
