"""A bench as a page of its own: bars, no script, nothing fetched, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from nimble.bench.busy import beside
from nimble.bench.contestants import NIMBLE
from nimble.bench.result import Network, Result, Row
from nimble.bench.verdict import verdict

_STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf8; --card: #fff; --ink: #1d2125; --soft: #667079;
  --line: #e4e2dd; --bar: #b9c4cf; --ours: #2f7d5b; --limit: #c2503a; --bad: #a33b2a; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --card: #1d2125; --ink: #e9ecef;
  --soft: #98a2ab; --line: #30363c; --bar: #4a5661; --ours: #52b788; --limit: #f0876f;
  --bad: #f29c8b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 0; }
p { margin: .2rem 0; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 1.1rem 1.25rem 1.25rem; margin-top: 1.25rem; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .4rem .8rem;
  align-items: center; margin: .9rem 0 .2rem; }
.name { font-weight: 500; overflow-wrap: anywhere; max-width: 13rem; }
.name small { color: var(--soft); font-weight: 400; white-space: nowrap; }
.track { position: relative; height: 1.35rem; }
.bar { position: absolute; inset: 0 auto 0 0; background: var(--bar); border-radius: 4px;
  min-width: 2px; }
.ours .bar { background: var(--ours); } .ours .name, .ours .value { color: var(--ours); }
.limit { position: absolute; top: -.2rem; bottom: -.2rem; border-left: 2px solid var(--limit); }
.value { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.value small { color: var(--soft); }
.row { display: contents; }
.failed { color: var(--bad); font-size: .9rem; overflow-wrap: anywhere; grid-column: 2 / 4; }
p.verdict { color: var(--ink); font-weight: 500; } p.note { margin-top: .7rem; }
.wide { overflow-x: auto; }
details { margin-top: .7rem; } summary { cursor: pointer; color: var(--soft); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  margin-top: .5rem; width: 100%; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 6.5rem; }
tr.best td { font-weight: 600; }
td.failed { white-space: normal; text-align: left; min-width: 20rem; }
@media (max-width: 44rem) { .bars { display: block; } .row { display: grid; margin-bottom: .7rem;
    grid-template-columns: 1fr max-content; } .track, div.failed { grid-area: 2 / 1 / 3 / 3; }
  .name { max-width: none; } .range { display: none; } }
.key { display: inline-block; width: 0; height: .9em; border-left: 2px solid var(--limit);
  margin: 0 .35em -.1em .1em; }
"""
_HEADS = ("contestant", "threads", "median ms", "min", "p99", "spread", "/ Nimble", "95 %",
          "/ limit",          "compile s", "first answer ms", "peak MB", "error")  # fmt: skip


def page(result: Result) -> str:
    """The page as HTML text."""
    machine = result.machine
    where = f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}"
    if machine.get("busy"):
        where += f"; {beside(machine['busy'])}"
    body = "".join("".join(_section(result, model)) for model in result.models)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>nimble bench</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>nimble bench</h1><p>{escape(where)}</p>"
        "<p>Median time of a call; shorter is better. Each contestant runs in a process of its own "
        "with the number of threads that suits it better, after its answers were compared with "
        "eager PyTorch in double precision. Beside it: its time over Nimble's, with the 95\u00a0% "
        'interval. <span class="key"></span>is the physical limit on this machine.</p>'
        f"{body}</main></body></html>\n"
    )


def _section(result: Result, model: str) -> Iterator[str]:
    rows, network = result.of(model), result.network(model)
    longest = max((row.median_ms or 0.0 for row in rows), default=0.0)
    yield f"<section><h2>{escape(model)}</h2>"
    yield f'<p class="verdict">{escape(verdict(rows))}</p>'
    if network is not None:
        yield f"<p>{escape(_limit(network, longest))}</p>"
    yield '<div class="bars">'
    for row in rows:
        yield _bar(row, longest, network)
    yield "</div>"
    yield from (
        f'<p class="note">Scheduling overhead of {escape(row.contestant)}: {row.scheduling}.</p>'
        for row in rows
        if row.scheduling is not None
    )
    yield from _details([row for row in result.rows if row.model == model])
    yield "</section>"


def _limit(network: Network, longest: float) -> str:
    return (
        f"Limit {_time(network.limit_ms, longest)}: {network.flops / 1e9:.3g} GFLOP of arithmetic "
        f"take {_time(network.compute_ms, longest)}, {network.bytes / 1e6:.3g} MB that must move "
        f"{_time(network.memory_ms, longest)}."
    )


def _bar(row: Row, longest: float, network: Network | None) -> str:
    kind = "row ours" if row.contestant == NIMBLE else "row"
    name = escape(row.contestant)
    if row.median_ms is None:
        return (
            f'<div class="row"><div class="name">{name}</div>'
            f'<div class="failed">{escape(row.reason)}</div></div>'
        )
    width = 100 * row.median_ms / longest if longest else 0.0
    mark = ""
    if network is not None and network.limit_ms <= longest:
        mark = f'<div class="limit" style="left:{100 * network.limit_ms / longest:.2f}%"></div>'
    ratio = ""
    if row.ratio is not None and row.contestant != NIMBLE:
        range = f"{row.ratio_low:.2f} to {row.ratio_high:.2f}"
        ratio = f' <small>{row.ratio:.2f}x<span class="range"> ({range})</span></small>'
    return (
        f'<div class="{kind}"><div class="name">{name} '
        f"<small>{row.threads} thr.</small></div>"
        f'<div class="track"><div class="bar" style="width:{width:.2f}%"></div>{mark}</div>'
        f'<div class="value">{_time(row.median_ms, longest)}{ratio}</div></div>'
    )


def _details(rows: list[Row]) -> Iterator[str]:
    heads = "".join(f"<th>{escape(head)}</th>" for head in _HEADS)
    yield '<details><summary>All figures</summary><div class="wide"><table>'
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in rows:
        if not row.ok:
            yield (
                f"<tr><td>{escape(row.contestant)}</td><td>{row.threads}</td>"
                f'<td colspan="{len(_HEADS) - 2}" class="failed">{escape(row.reason)}</td></tr>'
            )
            continue
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(row))
        yield f'<tr class="{"best" if row.counts else "other"}">{cells}</tr>'
    yield "</tbody></table></div></details>"


def _cells(row: Row) -> Iterator[str]:
    yield escape(row.contestant)
    yield str(row.threads)
    for value, shape in (
        (row.median_ms, "{:.3f}"),
        (row.min_ms, "{:.3f}"),
        (row.p99_ms, "{:.3f}"),
        (row.spread and 100 * row.spread, "{:.0f} %"),
        (row.ratio, "{:.2f}"),
    ):
        yield "" if value is None else shape.format(value)
    yield "" if row.ratio is None else f"{row.ratio_low:.2f} to {row.ratio_high:.2f}"
    for value, shape in (
        (row.of_limit, "{:.1f}"),
        (row.compile_s, "{:.1f}"),
        (row.first_ms, "{:.0f}"),
        (row.peak_mb, "{:.0f}"),
        (row.error, "{:.0e}"),
    ):
        yield "" if value is None else shape.format(value)


def _time(ms: float, longest: float) -> str:
    """In the unit that suits the longest time it stands beside."""
    value, unit = (ms, "ms") if longest >= 2 else (1e3 * ms, "\u00b5s")
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}\u00a0{unit}"
