"""Who wins on a network, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.bench.contestants import NIMBLE
from nimble.bench.result import Row


def verdict(rows: Sequence[Row]) -> str:
    """Of one network, each contestant at its better setting. Intervals that contain 1 decide
    nothing."""
    ours = next((row for row in rows if row.contestant == NIMBLE), None)
    if ours is None or not ours.ok:
        return "Nimble did not take part."
    peers = [row for row in rows if row.contestant != NIMBLE and row.ratio]
    if not peers:
        return "Nobody to compare Nimble with."
    peers.sort(key=lambda row: row.ratio or 0.0)
    faster = [row for row in peers if (row.ratio_high or 1.0) < 1]
    if faster:
        names = ", ".join(
            f"{r.contestant} ({1 / (r.ratio or 1.0):.2f} times as fast)" for r in faster
        )
        return f"Faster than Nimble: {names}."
    level = [row.contestant for row in peers if (row.ratio_low or 0.0) <= 1]
    if level:
        return f"As fast as Nimble, as far as can be told: {', '.join(level)}."
    absent = sorted({row.contestant for row in rows if not row.ok})
    return (
        f"Nimble is the fastest: {peers[0].ratio:.2f} times as fast as {peers[0].contestant}"
        + (f" (did not run: {', '.join(absent)})" if absent else "")
        + "."
    )
