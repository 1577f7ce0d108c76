"""What was asked for, beside what was measured: the lower end of each interval counts."""

from __future__ import annotations

from collections.abc import Iterator

from nimble.bench import Result, Row
from nimble.bench.contestants import NIMBLE

_EAGER = "eager"
_STRONG = ("compile", "onnxruntime", "openvino")
BARS = {
    "mobilenet_v2@32": (22.34, 2.0),
    **dict.fromkeys(("efficientnet_b0@32", "mlp", "lstm"), (8.0, 1.5)),
    **dict.fromkeys(("mobilenet_v2", "efficientnet_b0"), (3.0, 1.05)),
    **dict.fromkeys(("nasnet_a_mobile", "darts", "amoebanet"), (6.0, 1.15)),
    **dict.fromkeys(("googlenet", "inception_v3", "resnet50", "densenet121"), (1.5, 1.0)),
    **dict.fromkeys(("bert_tiny", "bert_base", "vit_tiny", "gpt2_step"), (1.3, 1.0)),
}
"""Network → how many times faster than eager, and than the best of the strong peers."""
TWO_WORKERS = 1.6
"""On networks at 224 pixels; never below 1 on any."""
_BEYOND = 0.05


def bars(result: Result) -> Iterator[str]:
    """A row a network; what is below its bar is bold."""
    yield (
        "Asked for, and measured: medians of ratios, with the interval of 95 %, whose lower end "
        "counts. Bold: missed."
    )
    yield ""
    yield (
        "| network | eager / Nimble | asked | best peer / Nimble | asked | one worker / two "
        "| asked | beyond the critical path |"
    )
    yield "|---" * 8 + "|"
    for model in (model for model in result.models if model in BARS):
        rows = [row for row in result.rows if row.model == model and row.ok]
        eager, peer = BARS[model]
        scaling = TWO_WORKERS if _is_large(model) else 1.0
        cells = [
            *_cells(_of_eager(rows, model), eager),
            *_cells(_closest(rows), peer),
            *_cells(_one_worker(rows), scaling),
            _beyond(rows),
        ]
        yield f"| {model} | {' | '.join(cells)} |"


def _is_large(model: str) -> bool:
    """Images of 224 pixels or more."""
    small = ("mlp", "lstm", "bert_tiny", "bert_base", "gpt2_step")
    return "@" not in model and model not in small


def _of_eager(rows: list[Row], model: str) -> Row | None:
    """Its better number of threads; for the first network its default, which is all cores."""
    eager = [row for row in rows if row.contestant == _EAGER]
    if model == "mobilenet_v2@32":
        return max(eager, key=lambda row: row.threads, default=None)
    return next((row for row in eager if row.counts), None)


def _closest(rows: list[Row]) -> Row | None:
    """Of the strong peers, each at its better number of threads, the one that comes closest."""
    peers = [row for row in rows if row.contestant in _STRONG and row.counts]
    return min(peers, key=lambda row: row.ratio_low or 0.0, default=None)


def _one_worker(rows: list[Row]) -> Row | None:
    """None where two workers are no faster: then the plan uses one."""
    return next((r for r in rows if r.contestant == NIMBLE and r.threads == 1), None)


def _cells(row: Row | None, bar: float) -> tuple[str, str]:
    if row is None or row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        return "-", f"{bar:g}"
    name = "" if row.contestant in (NIMBLE, _EAGER) else f"{row.contestant} "
    text = f"{name}{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
    return (f"**{text}**" if row.ratio_low < bar else text), f"{bar:g}"


def _beyond(rows: list[Row]) -> str:
    """Of the setting that counts."""
    mine = next((row for row in rows if row.contestant == NIMBLE and row.counts), None)
    if mine is None or mine.overhead_share is None:
        return "-"
    text = f"{100 * mine.overhead_share:.1f} %"
    return f"**{text}**" if mine.overhead_share > _BEYOND else text
