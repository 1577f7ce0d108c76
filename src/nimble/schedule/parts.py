"""Contents are written once, and wholly before they are read: what the proof asks of elements."""

from __future__ import annotations

from nimble.errors import ProofError
from nimble.graph import DType, Role
from nimble.graph.regions import (
    boxes,
    clash,
    covered,
    has_no_gaps,
    interval,
    marked,
    overlapping,
    overlaps_itself,
)
from nimble.schedule.layout import Layout

_GIVEN = (Role.INPUT, Role.PARAMETER, Role.CONSTANT, Role.STATE)
_MOST_PARTS = 1024


class Parts:
    """The values through which each contents is written; checks that no two have elements in common
    and that nobody writes what is given from outside."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._written: dict[int, list[int]] = {}
        self._whole: dict[int, bool] = {}
        graph = layout.graph
        for task in graph.tasks:
            for v in task.writes:
                content = graph[layout.content[v]]
                if graph[v].dtype is DType.TOKEN:
                    continue
                if content.role in _GIVEN and content.overwrites is None:
                    raise ProofError(
                        f"task {task.name!r} writes {layout.name(v)}, whose role is {content.role}"
                    )
                if graph[v].span and overlaps_itself(graph[v]):
                    raise ProofError(
                        f"task {task.name!r} writes {layout.name(v)}, elements of which share bytes"
                    )
                if graph[v].span:
                    self._written.setdefault(content.id, []).append(v)
        for content_id, written in self._written.items():
            self._check_apart(content_id, written)

    def apart(self, a: int, b: int) -> bool:
        """Whether two values of the same home are known to have no element in common."""
        return self._clash([a, b]) is None

    def check_written(self, v: int) -> None:
        """Raise ProofError if elements of `v` are neither given nor written by any task."""
        value = self._layout.graph[v]
        if value.span == 0 or value.role in _GIVEN:
            return
        content = self._layout.content[v]
        if content not in self._whole:
            # A view of contents with gaps may count the gaps as elements, which nobody writes.
            self._whole[content] = has_no_gaps(self._layout.graph[content]) and self._covers(
                content
            )
        if not self._whole[content] and not self._covers(v):
            raise ProofError(
                f"{self._layout.name(v)} is read, but not every element of it is known to be "
                "written in the same replay"
            )

    def _covers(self, v: int) -> bool:
        """Whether the elements of `v` are all written, counting what older versions left there."""
        graph, below = self._layout.graph, self._layout.content[v]
        if v in self._written.get(below, ()):
            return True
        written: list[int] = []
        for _ in range(_MOST_PARTS):
            written += self._written.get(below, ())
            over = graph[below].overwrites
            if over is None or len(written) > _MOST_PARTS:
                break
            below = over
        target, *by = boxes([graph[u] for u in (v, *written)])
        if target is not None and covered(target, [box for box in by if box is not None]):
            return True
        return None in (target, *by) and marked(graph[v], [graph[u] for u in written])

    def _check_apart(self, content: int, written: list[int]) -> None:
        if len(written) > _MOST_PARTS:
            raise ProofError(f"{self._layout.name(content)} is written in {len(written)} parts")
        clash = self._clash(written)
        if clash is not None:
            a, b = (self._layout.name(written[place]) for place in clash)
            raise ProofError(
                f"{a} and {b} are both written, and are not known to be different elements of "
                f"{self._layout.name(content)}"
            )

    def _clash(self, ids: list[int]) -> tuple[int, int] | None:
        values = [self._layout.graph[v] for v in ids]
        if len(ids) == 1 or overlapping([interval(value) for value in values]) is None:
            return None
        found = boxes(values)
        known = [box for box in found if box is not None]
        return overlapping(known) if len(known) == len(found) else clash(values)
