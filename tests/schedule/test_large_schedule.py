"""A network of 1,500 tasks is scheduled and proven; the times are printed, not judged."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest
from schedule_graphs import from_edges, nasnet_like

from nimble.schedule import prove, schedule


@pytest.mark.parametrize("streams", [None, 1, 2, 8])
def test_a_network_of_1500_tasks(streams: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(0)
    before = nasnet_like(1500)
    sizes = [3136 * random.choice([1, 2, 4, 4, 8, 16]) for _ in before]
    graph = from_edges(before, sizes, [random.randrange(500, 20_000) for _ in before])
    started = perf_counter()
    built = schedule(graph, streams=streams)
    scheduled = perf_counter()
    prove(built)
    proven = perf_counter()
    bound = built.arena_lower_bound
    bounded = perf_counter()
    with capsys.disabled():
        print(
            f"\n{len(before)} tasks, {len(built.streams)} streams, {len(built.waits)} waits, arena "
            f"{built.arena_bytes / bound:.3f} of its bound: scheduled and proven in "
            f"{scheduled - started:.2f} s, proof alone {proven - scheduled:.2f} s, "
            f"bound {bounded - proven:.2f} s"
        )
    assert built.arena_bytes <= 1.05 * bound
    assert built.decision.predicted_ns <= built.decision.sequential_ns
