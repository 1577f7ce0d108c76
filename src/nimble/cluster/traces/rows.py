"""Numbers and times in the rows of a trace; a ValueError says what is wrong with one."""

from __future__ import annotations

from datetime import datetime

_EPOCH = datetime(1970, 1, 1)


class Skipped(Exception):  # noqa: N818 - no error: the row is right, but not a job for GPUs
    """Why a row is left out."""


def seconds_of(text: str, column: str) -> float:
    """A date and time, as seconds. Zones are ignored: only differences count."""
    try:
        # Traces give the wall clock of one place.
        return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()
    except ValueError:
        raise ValueError(
            f"{column} is {text!r}; expected a time like 2017-10-09 07:01:55"
        ) from None


_MOST = 1e12
"""Seconds, iterations or GPUs: 30,000 years."""


def number(text: str, column: str, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}; expected a number") from None
    if not least <= value <= _MOST:
        raise ValueError(f"{column} is {text}; expected {least:g} to {_MOST:g}")
    return value


def whole(text: str, column: str, least: int = 0) -> int:
    """A whole number, also written as 4.0."""
    value = number(text, column, least)
    if value != int(value):
        raise ValueError(f"{column} is {text}; expected a whole number")
    return int(value)


def above_zero(text: str, column: str) -> float:
    value = number(text, column)
    if value == 0:
        raise ValueError(f"{column} is {text}; expected more than 0")
    return value
