"""A timeline as an SVG picture: a lane a stream, a bar a task, coloured by operator."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nimble.observe.timeline import Timeline

_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f",
    "#ff9da7", "#86bcb6", "#d4a6c8",
)  # fmt: skip
_OTHER = "#bab0ac"
_WIDTH, _LANE, _LEFT, _TOP = 1120, 44, 84, 46


def picture(timeline: Timeline) -> str:
    """The picture as SVG text; hovering over a bar tells its task."""
    duration = max(timeline.duration, 1)
    scale = (_WIDTH - _LEFT - 16) / duration
    bottom = _TOP + timeline.streams * _LANE
    spent = _time_by_op(timeline)
    colours = dict(zip(spent, _COLOURS, strict=False))
    counts = (
        (len(timeline.bars), "task"),
        (timeline.streams, "stream"),
        (len(timeline.waits), "wait"),
    )
    said = ", ".join(f"{n} {what}" if n == 1 else f"{n} {what}s" for n, what in counts)
    title = f"{timeline.name}: {said}, {duration / 1e6:.3f} ms"
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
            f'fill="{colours.get(bar.op, _OTHER)}" class="bar">'
            f"<title>{escape(bar.name)} ({escape(bar.op)}), "
            f"{(bar.stop - bar.start) / 1000:.1f} us</title></rect>"
        )
    shapes += _axis(duration, scale, bottom)
    shapes += _legend(spent, colours, bottom + 38)
    height = bottom + 38 + 22 * ((min(len(spent), len(_COLOURS) + 1) + 3) // 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><style>text{{font:13px sans-serif;fill:#24292f}}'
        ".title{font-weight:600;font-size:15px}.lane{fill:#f0f2f4}.bar{stroke:#fff;stroke-width:.4}.tick{stroke:#b8bfc6}"
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


def _time_by_op(timeline: Timeline) -> dict[str, int]:
    """Nanoseconds spent in each operator, most first."""
    spent: dict[str, int] = {}
    for bar in timeline.bars:
        spent[bar.op] = spent.get(bar.op, 0) + bar.stop - bar.start
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def _legend(spent: dict[str, int], colours: dict[str, str], y: int) -> list[str]:
    total = max(sum(spent.values()), 1)
    shown = [(_short(op), colours[op], time) for op, time in spent.items() if op in colours]
    rest = total - sum(time for _, _, time in shown)
    if len(spent) > len(shown):
        shown.append(("others", _OTHER, rest))
    entries = []
    for place, (name, colour, time) in enumerate(shown):
        x, row = _LEFT + (place % 4) * 258, y + (place // 4) * 22
        entries.append(
            f'<rect x="{x}" y="{row - 10}" width="12" height="12" fill="{colour}"/>'
            f'<text x="{x + 18}" y="{row}">{escape(name)} {100 * time / total:.0f} %</text>'
        )
    return entries


def _short(op: str) -> str:
    name = op.split(".")[1] if "." in op else op
    return name if len(name) <= 26 else name[:25] + "…"
