"""The busy neighbour is there while it is wanted, and gone afterwards."""

import os
from pathlib import Path

from nimble.bench.busy import busy_processes


def children():
    """Processes that this one started and that have not ended."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(n) for task in tasks for n in (task / "children").read_text().split()}


def test_neighbours_come_and_go():
    before = children()
    with busy_processes(2):
        assert len(children() - before) == 2
    assert children() == before


def test_none_are_started_unless_asked_for():
    before = children()
    with busy_processes(0):
        assert children() == before
