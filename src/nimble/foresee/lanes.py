"""A prediction as a picture: a lane a stream, a bar a task, all pictures on one scale of time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nimble.devices.sim import Prediction
from nimble.graph import Graph

WIDTH, LEFT = 1080, 64
_GAP = 4
_KINDS = (
    ("convolutions", ("convolution",)),
    ("matrix products", ("mm", "bmm", "addmm", "baddbmm", "linear", "scaled_dot_product")),
    ("norms", ("batch_norm", "layer_norm", "group_norm", "softmax")),
    ("pools and sums", ("pool", "mean", "sum", "max", "amax", "min")),
    ("copies", ("cat", "copy", "clone", "pad", "slice", "index", "embedding", "gather")),
)
OTHER = "pointwise and others"
KINDS = (*(name for name, _ in _KINDS), OTHER)


def kind(op: str) -> int:
    """Which of KINDS an operator is."""
    name = op.removeprefix("aten.").partition(".")[0]
    for place, (_, words) in enumerate(_KINDS):
        if any(name == word or (len(word) > 3 and word in name) for word in words):
            return place
    return len(_KINDS)


def lanes(graph: Graph, prediction: Prediction, until: float) -> str:
    """The picture as SVG, styled by the page that it is in. `until` is the time at its right."""
    streams = prediction.streams
    lane = 22 if len(streams) <= 6 else 15
    scale = (WIDTH - LEFT - 8) / max(until, 1.0)
    bottom = len(streams) * (lane + _GAP)
    shapes = []
    for row, stream in enumerate(streams):
        y = row * (lane + _GAP)
        shapes.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 8}" height="{lane}" class="lane"/>'
            f'<text x="0" y="{y + lane / 2 + 4:.0f}">stream {row}</text>'
        )
        shapes += [_bar(graph, prediction, task, y, lane, scale) for task in stream]
    end = LEFT + prediction.ns * scale
    shapes.append(f'<line x1="{end:.1f}" x2="{end:.1f}" y1="-2" y2="{bottom}" class="end"/>')
    shapes += _axis(until, scale, bottom)
    return (
        f'<svg viewBox="0 -4 {WIDTH} {bottom + 26}" role="img" aria-label="'
        f'{len(streams)} streams, {prediction.ms:.3f} ms">{"".join(shapes)}</svg>'
    )


def _bar(graph: Graph, prediction: Prediction, task: int, y: int, lane: int, scale: float) -> str:
    start, end = prediction.starts[task], prediction.ends[task]
    if end <= start:
        return ""
    op = graph.tasks[task].op
    width = max((end - start) * scale, 0.3)
    said = f"{graph.tasks[task].name} ({op}): {start / 1e3:.1f} to {end / 1e3:.1f} µs"
    return (
        f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{width:.2f}" height="{lane}" '
        f'class="k{kind(op)}"><title>{escape(said)}</title></rect>'
    )


def _axis(until: float, scale: float, y: int) -> Sequence[str]:
    step = next(
        k * 10**power for power in range(15) for k in (1, 2, 5) if until <= 8 * k * 10**power
    )
    marks = []
    for tick in range(0, int(until) + 1, step):
        x = LEFT + tick * scale
        said = f"{tick / 1e6:g} ms" if until >= 1e6 else f"{tick / 1e3:g} µs"
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}" class="tick"/>'
            f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{said}</text>'
        )
    return marks
