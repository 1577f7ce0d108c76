"""Scheduling on its own: the example of docs/scheduling.md runs, and nothing loads PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
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


def test_scheduling_needs_no_torch() -> None:
    code = "import sys, nimble.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
