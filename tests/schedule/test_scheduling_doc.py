"""Scheduling on its own: the example of docs/scheduling.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    code, printed = found.groups()
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed
