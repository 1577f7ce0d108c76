"""Runs as one HTML file: nothing fetched, light and dark, every job's story.

The scripts beside this file draw it; `contents.py` says what they are told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import ceil

from nimble.cluster.page.contents import Run, contents
from nimble.cluster.page.pack import Packed, unpack

# More rows or jobs than this and only each n-th job is listed: a page stays below about 15 MB.
ROWS = 1_700_000
JOBS = 1_000_000
SCRIPTS = ("base.js", "charts.js", "gantt.js", "links.js", "jobs.js", "main.js")


def page(runs: Sequence[Run], title: str = "nimble cluster") -> str:
    """The page as HTML text."""
    every = max(
        1,
        ceil(sum(len(run.result.record) for run in runs) / ROWS),
        ceil(sum(len(run.result.jobs) for run in runs) / JOBS),
    )
    packed = Packed()
    told = {"title": title, "runs": [contents(run, packed, every) for run in runs]}
    text = json.dumps({**told, "blobs": packed.blobs}, allow_nan=False, separators=(",", ":"))
    here = files(__name__)
    style = (here / "style.css").read_text("utf-8")
    body = (here / "body.html").read_text("utf-8")
    script = "\n".join((here / name).read_text("utf-8") for name in SCRIPTS)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="told">{_inert(text)}</script>\n'
        f"<script>\n(() => {{\n'use strict';\n{script}\n}})();\n</script>\n</body></html>\n"
    )


def _inert(text: str) -> str:
    """No name of a job can end the script element."""
    return text.replace("<", "\\u003c")


__all__ = ["Run", "page", "unpack"]
