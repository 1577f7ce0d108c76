"""How a lowered graph is cut for its workers."""

from __future__ import annotations

from nimble.graph import Graph
from nimble.lower.early import has_updates
from nimble.lower.kernels import Supported
from nimble.lower.lonely import lonely
from nimble.lower.recompute import recompute
from nimble.lower.strips import in_strips
from nimble.lower.tiles import split

CUTS = ("whole", "tiles", "some", "strips", "in order")
"""Tasks as they are; in tiles that workers share; those in tiles beside which nothing else could
run; chains on large images in strips, and tiles; and where states are updated, in tiles that are
meant to run in the order of the graph: an update that follows its gradient finds that in a cache,
and frees its memory."""
IN_ORDER = ("strips", "in order")
LEAST_TO_SPLIT_NS = 600
"""Shorter tasks are not worth a wait."""


def cut(graph: Graph, how: str, workers: int, supported: Supported, lean: int = 0) -> Graph:
    """The graph itself where there is nothing to cut. With `lean`, first changed so that no more
    bytes than that are alive at any time."""
    if lean:
        graph = recompute(graph, lean) or graph
    if how == "strips":
        strips = in_strips(graph, workers, supported)
        if len(strips.tasks) == len(graph.tasks):
            return graph
        graph = strips
    if how == "whole" or workers == 1:
        return graph
    if how != "strips" and has_updates(graph) != (how == "in order"):
        return graph
    only = lonely(graph, workers) if how == "some" else None
    large = (t for t, task in enumerate(graph.tasks) if task.cost >= LEAST_TO_SPLIT_NS)
    if only is not None and only.issuperset(large):
        return graph  # All of them, as before.
    tiles = split(graph, workers, LEAST_TO_SPLIT_NS, supported, only)
    return tiles if len(tiles.tasks) > len(graph.tasks) else graph
