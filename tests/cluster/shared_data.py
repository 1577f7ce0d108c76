"""Real traces and measurements, where somebody has put them beside the project."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(path: str) -> Path:
    """The file or folder `../shared/data/<path>`; the test is skipped where there is none."""
    found = DATA / path
    if not found.exists():
        pytest.skip(f"no {path} in ../shared/data beside the project")
    return found
