"""Nimble beside its peers: the same answers first, then the same clock (docs/bench.md)."""

from nimble.bench.referee import Settings, bench
from nimble.bench.result import Network, Result, Row

__all__ = ["Network", "Result", "Row", "Settings", "bench"]
