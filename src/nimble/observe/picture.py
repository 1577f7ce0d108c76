"""A timeline as an SVG picture: a lane a stream, a bar a task, coloured by operator."""

from __future__ import annotations

import hashlib
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nimble.observe.timeline import Timeline

_WIDTH, _LANE, _LEFT, _TOP = 1120, 44, 84, 46


def picture(timeline: Timeline) -> str:
    """The picture as SVG text; hovering over a bar tells its task."""
    duration = max(timeline.duration, 1)
    scale = (_WIDTH - _LEFT - 16) / duration
    bottom = _TOP + timeline.streams * _LANE
    title = (
        f"{timeline.name}: {len(timeline.bars)} tasks, {timeline.streams} streams, "
        f"{len(timeline.waits)} waits, {duration / 1e6:.3f} ms"
    )
    shapes = [f'<text x="{_LEFT}" y="22" class="title">{escape(title)}</text>']
    for stream in range(timeline.streams):
        y = _TOP + stream * _LANE
        shapes.append(
            f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT - 16}" height="{_LANE - 8}" '
            f'class="lane"/><text x="8" y="{y + 23}" class="label">stream {stream}</text>'
        )
    for bar in timeline.bars:
        x, y = _LEFT + bar.start * scale, _TOP + bar.stream * _LANE
        width = max((bar.stop - bar.start) * scale, 0.4)
        shapes.append(
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_LANE - 8}" '
            f'fill="{_colour(bar.op)}"><title>{escape(bar.name)} ({escape(bar.op)}), '
            f"{(bar.stop - bar.start) / 1000:.1f} us</title></rect>"
        )
    shapes += _axis(duration, scale, bottom)
    shapes += _legend(timeline, bottom + 34)
    height = bottom + 34 + 22 * (1 + (min(len({b.op for b in timeline.bars}), 12) - 1) // 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><style>text{{font:13px sans-serif;fill:#24292f}}'
        ".title{font-weight:600;font-size:15px}.lane{fill:#f0f2f4}.tick{stroke:#b8bfc6}"
        f'</style><rect width="100%" height="100%" fill="#fff"/>{"".join(shapes)}</svg>\n'
    )


def _axis(duration: int, scale: float, y: int) -> list[str]:
    # 1, 2 or 5 times a power of ten, so that at most eight ticks are needed.
    step = next(
        k * 10**power for power in range(15) for k in (1, 2, 5) if duration <= 8 * k * 10**power
    )
    marks = []
    for tick in range(0, duration + 1, step):
        x = _LEFT + tick * scale
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 4}" y2="{y + 2}" class="tick"/>'
            f'<text x="{x:.1f}" y="{y + 16}" text-anchor="middle">{_time(tick)}</text>'
        )
    return marks


def _time(ns: int) -> str:
    return f"{ns / 1e6:g} ms" if ns >= 1_000_000 else f"{ns / 1000:g} us"


def _legend(timeline: Timeline, y: int) -> list[str]:
    spent: dict[str, int] = {}
    for bar in timeline.bars:
        spent[bar.op] = spent.get(bar.op, 0) + bar.stop - bar.start
    total = max(sum(spent.values()), 1)
    entries = []
    for place, op in enumerate(sorted(spent, key=lambda op: -spent[op])[:12]):
        x, row = _LEFT + (place % 4) * 258, y + (place // 4) * 22
        entries.append(
            f'<rect x="{x}" y="{row - 10}" width="12" height="12" fill="{_colour(op)}"/>'
            f'<text x="{x + 18}" y="{row}">{escape(_short(op))} {100 * spent[op] / total:.0f} %'
            "</text>"
        )
    return entries


def _short(op: str) -> str:
    name = op.split(".")[1] if "." in op else op
    return name if len(name) <= 26 else name[:25] + "…"


def _colour(op: str) -> str:
    hue = int(hashlib.sha256(op.encode()).hexdigest()[:4], 16) % 360
    return f"hsl({hue},62%,56%)"
