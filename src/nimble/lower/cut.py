"""How a lowered graph is cut for its workers."""

from __future__ import annotations

from nimble.graph import Graph
from nimble.lower.kernels import Supported
from nimble.lower.strips import in_strips
from nimble.lower.tiles import split

CUTS = ("whole", "tiles", "strips")
"""Tasks as they are; in tiles that workers share; chains on large images in strips, and tiles."""
LEAST_TO_SPLIT_NS = 600
"""Shorter tasks are not worth a wait."""


def cut(graph: Graph, how: str, workers: int, supported: Supported) -> Graph:
    """The graph itself where there is nothing to cut."""
    if how == "strips":
        strips = in_strips(graph, workers, supported)
        if len(strips.tasks) == len(graph.tasks):
            return graph
        graph = strips
    if how == "whole" or workers == 1:
        return graph
    tiles = split(graph, workers, LEAST_TO_SPLIT_NS, supported)
    return tiles if len(tiles.tasks) > len(graph.tasks) else graph
