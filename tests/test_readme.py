"""The README's code runs as it is written there."""

import re
from pathlib import Path

from nimble.devices.sim import published_error

README = Path(__file__).parents[1] / "README.md"


def test_the_code_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    made = {}
    exec(code, made)
    assert made["y"].shape == made["fast"](made["x"]).shape
    assert {"run.json", "model.nimble"} <= {path.name for path in tmp_path.iterdir()}


def test_the_error_of_predictions_is_that_of_the_present_fit():
    assert f"({published_error().median * 100:.0f} % median error" in README.read_text()
