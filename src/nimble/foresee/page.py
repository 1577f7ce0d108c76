"""Predictions as a page of their own: verdict, table, streams over time. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from nimble.devices.sim import Error, Prediction, published_error
from nimble.foresee.foresight import Foreseen
from nimble.foresee.lanes import KINDS, lanes

_STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf8; --card: #fff; --ink: #1d2125; --soft: #667079;
  --line: #e4e2dd; --lane: #f1efeb; --bar: #b9c4cf; --ours: #2f7d5b; --end: #c2503a;
  --badge: #8a5a00; --badge-paper: #fdf0d5; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --card: #1d2125; --ink: #e9ecef;
  --soft: #98a2ab; --line: #30363c; --lane: #262b30; --bar: #4a5661; --ours: #52b788;
  --end: #f0876f; --badge: #ffd27a; --badge-paper: #3a3020; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 1.1rem 0 .45rem; font-weight: 600; }
h3 small { color: var(--soft); font-weight: 400; }
p { margin: .2rem 0; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 1.1rem 1.25rem 1.25rem; margin-top: 1.25rem; }
.badge { display: inline-block; background: var(--badge-paper); color: var(--badge);
  border-radius: 6px; padding: .1rem .5rem; font-size: .8rem; font-weight: 600; }
.verdict { color: var(--ink); font-size: 1.25rem; font-weight: 600; line-height: 1.35;
  margin: .2rem 0 .5rem; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .45rem .8rem;
  align-items: center; margin-top: 1rem; }
.bar { background: var(--bar); height: 1.3rem; border-radius: 4px; min-width: 2px; }
.ours { background: var(--ours); } .value { font-variant-numeric: tabular-nums; text-align: right; }
.value small { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  width: 100%; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
tr.chosen td { font-weight: 600; color: var(--ours); }
svg { width: 100%; height: auto; display: block; min-width: 46rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.lane { fill: var(--lane); } .tick { stroke: var(--line); }
.end { stroke: var(--end); stroke-width: 1.5; }
.k0 { fill: #4e79a7; } .k1 { fill: #b07aa1; } .k2 { fill: #f28e2b; } .k3 { fill: #76b7b2; }
.k4 { fill: #9c755f; } .k5 { fill: #59a14f; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .85rem;
  color: var(--soft); }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  margin-right: .4rem; vertical-align: -.08rem; }
li { color: var(--soft); }
@media (max-width: 36rem) {
  main { padding: 1.25rem .75rem 2.5rem; } section { padding: .9rem .9rem 1rem; }
  h1 { font-size: 1.35rem; } ul { padding-left: 1.1rem; }
  .bars { grid-template-columns: 1fr max-content; grid-auto-flow: dense; gap: .15rem .8rem; }
  .bars > :nth-child(3n+2) { grid-column: 1 / -1; margin-bottom: .5rem; }
  th, td { padding: .3rem .35rem; } th { white-space: normal; vertical-align: bottom; }
  td:first-child { white-space: normal; min-width: 7rem; }
}
"""


def page(seen: Foreseen) -> str:
    """The page as HTML text."""
    title = f"{seen.subject.name} on {seen.gpu.name}"
    colours = "".join(f".legend .c{n} {{ background: {_colour(n)}; }}" for n in range(len(KINDS)))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>nimble predict: {escape(title)}</title><style>{_STYLE}{colours}</style></head>"
        f'<body><main><span class="badge">A prediction, not a measurement</span>'
        f"<h1>{escape(title)}</h1><p>{escape(error_line(published_error()))}</p>"
        f"{''.join(_verdict(seen))}{''.join(_table(seen))}{''.join(_timelines(seen))}"
        f"{''.join(_tried(seen))}</main></body></html>\n"
    )


def error_line(error: Error) -> str:
    return (
        f"On {error.cells} published speed-ups of networks that it was not fitted to, the model "
        f"was off by {error.median:.0%} in the median and by {error.worst:.0%} at worst. "
        "Those are of a V100 and its host of 2020, with pointwise chains fused; other GPUs, hosts, "
        "and what streams gain are less certain (docs/gpu.md)."
    )


def _colour(place: int) -> str:
    return ("#4e79a7", "#b07aa1", "#f28e2b", "#76b7b2", "#9c755f", "#59a14f")[place]


def ways(seen: Foreseen) -> list[tuple[str, Prediction]]:
    """The ways to run it that were predicted, the chosen one last."""
    return [
        ("eager PyTorch", seen.eager),
        ("graph, one stream", seen.single),
        ("graph, Nimble's assignment", seen.assigned),
        ("graph, as chosen", seen.choice.prediction),
    ]


def _verdict(seen: Foreseen) -> Iterator[str]:
    longest = max(prediction.ns for _, prediction in ways(seen))
    yield f'<section><p class="verdict">{escape(seen.verdict)}</p>'
    yield (
        f"<p>{len(seen.subject.planned.tasks)} tasks; the longest chain of them takes "
        f"{seen.single.critical_path_ns / 1e6:.3f} ms, the arithmetic or the bytes of all at least "
        f"{seen.single.work_ns / 1e6:.3f} ms. Eager is predicted for {escape(seen.host.name)}.</p>"
    )
    yield '<div class="bars">'
    for name, prediction in ways(seen):
        ours = " ours" if prediction is seen.choice.prediction else ""
        yield (
            f'<div>{escape(name)}</div><div><div class="bar{ours}" '
            f'style="width:{100 * prediction.ns / longest:.2f}%"></div></div><div class="value">'
            f"{prediction.ms:.3f} ms <small>{seen.eager.ns / prediction.ns:.2f}x</small></div>"
        )
    yield "</div></section>"


def _table(seen: Foreseen) -> Iterator[str]:
    heads = ("", "ms", "x eager", "x one stream", "streams", "GPU idle", "activations MB",
             "weights MB")  # fmt: skip
    yield '<section><h2>In figures</h2><div class="wide"><table><thead><tr>'
    yield "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead><tbody>"
    for name, found in ways(seen):
        cells = (
            escape(name), f"{found.ms:.3f}", f"{seen.eager.ns / found.ns:.2f}",
            f"{seen.single.ns / found.ns:.2f}", str(len(found.streams)), f"{found.idle:.0%}",
            f"{found.arena_bytes / 1e6:.2f}", f"{found.weights_bytes / 1e6:.1f}",
        )  # fmt: skip
        mark = ' class="chosen"' if found is seen.choice.prediction else ""
        yield f"<tr{mark}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div><p>“x eager” and “x one stream”: how many times as fast.</p>"
    yield "</section>"


def _timelines(seen: Foreseen) -> Iterator[str]:
    graph, chosen = seen.subject.planned, seen.choice.prediction
    shown = [("One stream", seen.single)]
    if len(seen.assigned.streams) > 1:
        shown.append(("Nimble's assignment", seen.assigned))
    if len(chosen.streams) > 1 and chosen.starts != seen.assigned.starts:
        shown.append(("As chosen", chosen))
    until = max(prediction.ns for _, prediction in shown)
    yield "<section><h2>Streams over time</h2>"
    yield '<div class="legend">' + "".join(
        f'<span><i class="c{n}"></i>{escape(name)}</span>' for n, name in enumerate(KINDS)
    ) + "</div>"  # fmt: skip
    for name, prediction in shown:
        count = len(prediction.streams)
        said = f"{count} stream{'' if count == 1 else 's'}, {prediction.ms:.3f} ms"
        yield f"<h3>{escape(name)} <small>{said}</small></h3>"
        yield f'<div class="wide">{lanes(graph, prediction, until)}</div>'
    yield "<p>A bar is a task; point at one to read its name and times.</p></section>"


def _tried(seen: Foreseen) -> Iterator[str]:
    yield "<section><h2>What was compared</h2><ul>"
    yield "".join(f"<li>{escape(reason)}</li>" for reason in seen.choice.reasons)
    yield "</ul></section>"
