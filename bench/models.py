"""Checks every model of the catalogue against eager PyTorch and writes docs/models.md.

`python bench/models.py`, or `make models`. Exits with 1 if a model fails; the table says which.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from catalogue import CATALOGUE, Entry  # noqa: E402

from nimble import zoo  # noqa: E402
from nimble.cli.check import Row, check  # noqa: E402
from nimble.errors import NimbleError  # noqa: E402
from nimble.targets import Made, make  # noqa: E402

HEAD = """# Models that Nimble was checked on

Written by `make models`. Each model is compiled and compared with eager PyTorch on two inputs, as
`nimble check` does. *error* is max|y - y64| / max|y64| against eager PyTorch in float64; beside it
stands the same for eager in the model's own precision. A model passes if its error stays within
max(1e-4, 4 times eager's own), its results have eager's structure, shapes and dtypes, and its two
inputs give results that differ by 1e-2, so that a wrong answer would be seen. *ATen* counts tasks
without a native kernel.
"""
COLUMNS = "model | family | | error | eager's | tasks | ATen | streams | waits | arena KB | / bound"


def line(family: str, row: Row) -> str:
    over = row.arena_bytes / row.arena_lower_bound if row.arena_lower_bound else 1.0
    return (
        f"| {row.name} | {family} | {'ok' if row.ok else 'FAILED: ' + row.why} "
        f"| {row.max_abs_err:.1e} | {row.eager_err:.1e} | {row.tasks} | {row.fallbacks} "
        f"| {row.streams} | {row.waits} | {row.arena_bytes / 1000:.0f} | {over:.3f} |"
    )


def checked(entry: Entry) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, args, kwargs = entry.build()
        try:
            return check(Made(entry.name, model, args, kwargs))
        except NimbleError as error:
            return Row(entry.name, False, str(error))


def main() -> int:
    foreign = [e for e in CATALOGUE if e.installed]
    theirs = [(e.family, checked(e)) for e in track(foreign, "models of others")]
    ours = [("zoo", check(make(name))) for name in track(zoo.names(), "our networks")]
    lines = [HEAD]
    for title, rows in (("Models that nobody here wrote", theirs), ("Our own networks", ours)):
        passed = sum(row.ok for _, row in rows)
        lines += [
            f"## {title}: {passed} of {len(rows)} pass",
            "",
            f"| {COLUMNS} |",
            "|" + "---|" * 11,
        ]
        lines += [line(family, row) for family, row in rows]
        lines.append("")
    (ROOT / "docs" / "models.md").write_text("\n".join(lines))
    failed = [row for _, row in theirs + ours if not row.ok]
    print(f"{len(theirs) + len(ours) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
