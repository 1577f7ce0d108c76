"""Published and predicted as pictures (SVG), for docs/gpu.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from pathlib import Path

from nimble.reproduce.rows import SPEEDUP, STEP, Row, Tables

_WIDTH, _LEFT, _RIGHT = 760, 190, 70
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:15px}"
    ".soft{fill:#667079;font-size:12px}.published{fill:#b9c4cf}.predicted{fill:#2f7d5b}"
    ".line{stroke:#d5d2cb}.middle{stroke:#667079;stroke-dasharray:4 3}.band{fill:#eef3ef}"
)


def write_figures(found: Tables, folder: Path) -> Iterator[Path]:
    """Write the pictures, and yield where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = found.cells(True)
    for name, title, rows in (
        ("inference", "Inference on a V100, batch 1", [r for r in cells if r.metric == SPEEDUP]),
        ("training", "Training steps on a V100, 32 x 32", [r for r in cells if r.metric == STEP]),
    ):
        path = folder / f"gpu-{name}.svg"
        path.write_text(bars(f"{title}: times as fast as eager PyTorch", rows))
        yield path
    path = folder / "gpu-errors.svg"
    path.write_text(scatter(cells))
    yield path


def bars(title: str, rows: Sequence[Row]) -> str:
    """Two bars a row: published, and predicted by a model that did not see the network."""
    longest = max(max(row.published, row.predicted) for row in rows)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    shapes = [f'<text x="8" y="22" class="title">{escape(title)}</text>', *_legend(44)]
    y = 64
    for row in rows:
        shapes.append(f'<text x="{_LEFT - 10}" y="{y + 19}" text-anchor="end">{row.network}</text>')
        for place, (kind, value) in enumerate(
            (("published", row.published), ("predicted", row.predicted))
        ):
            top, width = y + 14 * place, value * scale
            said = f"{value:.2f}" if kind == "published" else f"{value:.2f} ({row.error:+.0%})"
            shapes.append(
                f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="12" rx="2" '
                f'class="{kind}"/><text x="{_LEFT + width + 6:.1f}" y="{top + 10.5}" '
                f'class="soft">{said}</text>'
            )
        y += 38
    return _svg(_WIDTH, y, shapes)


def _legend(y: int) -> Iterator[str]:
    for x, kind, said in ((8, "published", "published"), (110, "predicted", "predicted unseen")):
        yield (
            f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" class="{kind}"/>'
            f'<text x="{x + 18}" y="{y}">{said}</text>'
        )


def scatter(rows: Sequence[Row]) -> str:
    """Predicted over published, on logarithmic axes; the band is 20 %."""
    size, left, top = 440, 60, 44
    values = [v for row in rows for v in (row.published, row.predicted)]
    low, high = log10(min(values) * 0.85), log10(max(values) * 1.2)

    def at(value: float) -> float:
        return size * (log10(value) - low) / (high - low)

    first, last = 10**low, 10**high
    corners = [
        (first, first * 1.2), (last / 1.2, last), (last, last), (last, last / 1.2),
        (first * 1.2, first), (first, first),
    ]  # fmt: skip
    points = " ".join(f"{left + at(x):.1f},{top + size - at(y):.1f}" for x, y in corners)
    shapes = [
        '<text x="8" y="22" class="title">Speed-ups over eager PyTorch; the band is 20 %</text>',
        f'<polygon points="{points}" class="band"/>',
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" class="middle"/>',
    ]
    for tick in (1, 2, 3, 5, 10, 20):
        if first <= tick <= last:
            x, y = left + at(tick), top + size - at(tick)
            shapes += [
                f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + size}" class="line"/>',
                f'<line x1="{left}" y1="{y:.1f}" x2="{left + size}" y2="{y:.1f}" class="line"/>',
                f'<text x="{x:.1f}" y="{top + size + 18}" text-anchor="middle">{tick}</text>',
                f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>',
            ]
    for row in rows:
        x, y = left + at(row.published), top + size - at(row.predicted)
        colour = "#2f7d5b" if row.metric == SPEEDUP else "#4e79a7"
        shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}" fill-opacity=".85">'
            f"<title>{escape(row.network)}: {row.published} and {row.predicted:.2f}</title>"
            "</circle>"
        )
    shapes += [
        f'<text x="{left + size / 2}" y="{top + size + 38}" text-anchor="middle">published</text>',
        (
            f'<text transform="translate(16 {top + size / 2}) rotate(-90)" text-anchor="middle">'
            "predicted unseen</text>"
        ),
        (
            f'<circle cx="{left + 14}" cy="{top + 14}" r="5" fill="#2f7d5b"/>'
            f'<text x="{left + 26}" y="{top + 18}">inference</text>'
        ),
        (
            f'<circle cx="{left + 14}" cy="{top + 34}" r="5" fill="#4e79a7"/>'
            f'<text x="{left + 26}" y="{top + 38}">training</text>'
        ),
    ]
    return _svg(left + size + 20, top + size + 50, shapes)


def _svg(width: int, height: int, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(shapes)}</svg>\n"
    )
