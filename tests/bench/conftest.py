"""Small networks on busy cores: a second thread would cost far more time than it saves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nimble.compare import one_thread


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
