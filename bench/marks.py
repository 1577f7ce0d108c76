"""Tables that are written into documents by those who measure them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def rewrite(path: Path, name: str, lines: Iterable[str]) -> None:
    """Replace what stands between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = path.read_text()
    before, after = text.index(begin) + len(begin), text.index(end)
    path.write_text(text[:before] + "\n" + "\n".join(lines) + "\n" + text[after:])
