"""Schedules within a memory limit: with tasks run twice, if no other fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nimble.errors import MemoryLimitError
from nimble.graph import Graph
from nimble.lower.recompute import recompute

_T = TypeVar("_T")
Attempt = Callable[[Graph, int | None, int], _T]
"""Schedules a graph within so many bytes, or raises MemoryLimitError. The last number is what
`recompute` was given to make the graph, 0 for the graph as it was."""

_LEANER = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8)
"""Of a memory limit, what may be alive at once: values do not fit side by side without gaps."""
_HALVINGS = 5
"""To find out what would have been enough."""


def within(limit: int | None, graph: Graph, attempt: Attempt[_T]) -> _T:
    try:
        return attempt(graph, limit, 0)
    except MemoryLimitError as error:
        assert limit is not None
        refused = error
    found = _leaner(limit, graph, attempt)
    if found is not None:
        return found
    too_little, enough = limit, refused.smallest
    for _ in range(_HALVINGS):
        between = (too_little + enough) // 2
        if _leaner(between, graph, attempt) is None:
            too_little = between
        else:
            enough = between
    raise refused.even_twice(enough)


def _leaner(limit: int, graph: Graph, attempt: Attempt[_T]) -> _T | None:
    for share in _LEANER:
        lean = int(limit * share)
        leaner = recompute(graph, lean)
        if leaner is None:
            return None
        try:
            return attempt(leaner, limit, lean)
        except MemoryLimitError:
            continue
    return None
