"""What happens around a capture: libraries are warm, and what a task made outlives the capture."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cuda_engines import on_standin
from cuda_standin import UNSUPPORTED, Graph, StandIn, Stream
from torch import nn


class Watching(StandIn):
    """Notes which of the tensors that tasks made are still held when a capture ends."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self._made: list[Any] = []

    def from_pool(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = super().from_pool(like)
        capture = self.current().capture
        assert capture is not None
        self._made.append(capture.temporaries[-1])
        return made

    def end(self, graph: Graph, stream: Stream) -> None:
        self.held.append(sum(not made.held.expired() for made in self._made))
        super().end(graph, stream)


def test_what_tasks_made_is_kept_until_the_capture_ends() -> None:
    x = torch.randn(4, 6)
    engine, cuda = on_standin(
        lambda x: (x.flip(0).roll(1) + x.roll(2), x.flip(1)), (x,), Watching()
    )
    kinds = list(engine.plans[0].replay.kinds.values())
    assert kinds.count("copy") == 4, "operators that cannot write where they are told"
    assert isinstance(cuda, Watching)
    assert cuda.held == [4], "of one capture"
    (outside,) = [said for what, said in engine.plans[0].replay.remarks() if what == "outside"]
    assert f"{4 * x.numel() * x.element_size()} B made by 4 tasks" in outside


class Choosy(StandIn):
    """As cuDNN with its search on: algorithms are chosen when a task first runs, and remembered by
    thread and by where its memory is; none can be chosen while a stream captures."""

    def __init__(self) -> None:
        super().__init__()
        self._chosen: set[tuple[int, str, int]] = set()
        self.block = 0

    def allocate(self, nbytes: int) -> torch.Tensor:
        self.block += 1
        return super().allocate(nbytes)

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        key = (threading.get_ident(), name, self.block)
        if self.current().capture is None:
            self._chosen.add(key)
        elif key not in self._chosen:
            raise self._fail(UNSUPPORTED)
        with super().task(name):
            yield


def in_a_thread(action: Any) -> Any:
    """Its result, of another thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_libraries_are_warm_wherever_and_whenever_a_graph_is_captured(elsewhere: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    call = in_a_thread if elsewhere else lambda action: action()
    x, larger = torch.randn(1, 3, 8, 8), torch.randn(6, 3, 8, 8)
    engine, _ = on_standin(model, (x,), Choosy())
    with torch.no_grad():
        bound = call(lambda: engine.bind(x))
        torch.testing.assert_close(call(lambda: engine(larger)), model(larger))
        # Its arena has moved, so that both are captured again.
        torch.testing.assert_close(call(lambda: engine(x)), model(x))
        call(engine.run)
        torch.testing.assert_close(bound, model(x))
    assert not engine.plans[0].replay.eager, "nothing was left out of the graph"


def test_warming_up_leaves_what_is_bound_alone() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    engine, _ = on_standin(count, (torch.zeros(3),))
    result = engine.bind(x)
    assert x.tolist() == [0, 0, 0]
    engine.run()
    assert x.tolist() == [1, 1, 1]
    assert result.tolist() == [2, 2, 2]


def test_a_warm_up_draws_no_random_numbers_from_the_user() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    on_standin(nn.Dropout(0.5).train(), (torch.ones(8),))
    assert torch.equal(torch.rand(2), expected)


def test_a_warm_up_runs_on_inputs_that_make_sense() -> None:
    model = nn.Embedding(10, 4)
    few, many = torch.tensor([1, 2]), torch.arange(10)
    engine, _ = on_standin(model, (few,))
    for rows in (many, few):  # The second is captured again, on the arena of the first.
        assert torch.equal(engine(rows), model(rows).detach())
