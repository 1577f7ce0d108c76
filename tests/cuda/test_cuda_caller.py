"""Work that is not captured is ordered with the caller's, on whatever stream the caller is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from cuda_engines import on_standin
from cuda_standin import Event, StandIn, Stream
from torch import nn


class Noting(StandIn):
    """Writes down who waits for whom, and what runs where, outside of captures."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, ...]] = []
        self._where: dict[Event, str] = {}

    def _note(self, stream: Stream, *said: str) -> None:
        if stream.capture is None:
            self.notes.append(said)

    def record(self, event: Event, stream: Stream) -> None:
        super().record(event, stream)
        self._where[event] = stream.name

    def wait(self, stream: Stream, event: Event) -> None:
        if event.capture is None:
            self._note(stream, "wait", stream.name, self._where.get(event, ""))
        super().wait(stream, event)

    def synchronize(self) -> None:
        self._note(self.current(), "synchronize")
        super().synchronize()

    def allocate(self, nbytes: int) -> torch.Tensor:
        self._note(self.current(), "allocate", str(nbytes))
        return super().allocate(nbytes)

    def replay(self, graph: object) -> None:
        self._note(self.current(), "replay", self.current().name)
        super().replay(graph)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        self._note(self.current(), "task", self.current().name)
        with super().task(name):
            yield


def test_a_warm_up_comes_after_the_callers_work_and_before_its_next() -> None:
    cuda = Noting()
    caller = cuda.stream()
    with cuda.on(caller):
        on_standin(nn.Linear(3, 3), (torch.randn(2, 3),), cuda)
    tasks = [place for place, note in enumerate(cuda.notes) if note[0] == "task"]
    (origin,) = {cuda.notes[place][1] for place in tasks}
    before, after = ("wait", origin, caller.name), ("wait", caller.name, origin)
    assert before in cuda.notes[: tasks[0]]
    assert after in cuda.notes[tasks[-1] :]


def test_a_replay_waits_for_the_one_before_it_on_another_stream() -> None:
    cuda = Noting()
    x = torch.randn(2, 3)
    engine, _ = on_standin(nn.Linear(3, 3), (x,), cuda)
    one, other = cuda.stream(), cuda.stream()
    for stream in (one, one, other):
        cuda.notes.clear()
        with cuda.on(stream):
            engine(x)
        waits = [note for note in cuda.notes if note[0] == "wait"]
        assert cuda.notes[-1] == ("replay", stream.name)
    assert waits == [("wait", other.name, one.name)]
    assert cuda.notes.index(waits[0]) < cuda.notes.index(("replay", other.name))


def test_an_arena_that_grows_is_let_go_of_only_when_nobody_uses_it() -> None:
    cuda = Noting()
    engine, _ = on_standin(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (torch.randn(2, 3),), cuda)
    cuda.notes.clear()
    engine(torch.randn(50, 3))
    (place,) = [place for place, note in enumerate(cuda.notes) if note[0] == "allocate"]
    assert cuda.notes[place - 1] == ("synchronize",)
