"""Operators that break a rule of stream capture: an error of ours names the task and the way out;
those that may run between captured parts do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import cuda_standin
import pytest
import torch
from cuda_engines import on_standin
from cuda_standin import CudaError, Event, Graph, StandIn

import nimble
from nimble.devices.cuda import Cuda
from nimble.devices.cuda.rules import RULES, broken_rule
from nimble.errors import StreamCaptureError

Deed = Callable[[StandIn, torch.Tensor], object]
_cuda = StandIn()
_outside = Event()


def _another_capture(cuda: StandIn, x: torch.Tensor) -> None:
    graph, stream, event = Graph(), cuda.stream(), Event()
    cuda.begin(graph, stream)
    try:
        cuda.record(event, stream)
        cuda.wait(cuda.current(), event)
    finally:
        with pytest.raises(CudaError):
            cuda.end(graph, stream)


def _swallow(cuda: StandIn, x: torch.Tensor) -> None:
    with pytest.raises(CudaError):
        cuda.synchronize()
    x + 1


def _now(cuda: StandIn) -> Event:
    """An event of the capture."""
    event = Event()
    cuda.record(event, cuda.current())
    return event


def _forked(cuda: StandIn) -> cuda_standin.Stream:
    """Another stream that has joined the capture."""
    stream = cuda.stream()
    cuda.wait(stream, _now(cuda))
    return stream


def _leave_behind(cuda: StandIn, x: torch.Tensor) -> None:
    with cuda.on(_forked(cuda)):
        x + 1


def _on_default_stream(cuda: StandIn, x: torch.Tensor) -> None:
    with cuda.on(cuda.default):
        x + 1


def _end_elsewhere(cuda: StandIn, x: torch.Tensor) -> None:
    stream, failed = cuda.current(), []

    def end() -> None:
        try:
            assert stream.capture is not None
            cuda.end(stream.capture.graph, stream)
        except CudaError as error:
            failed.append(error)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    raise failed[0]


def _let_go(cuda: StandIn, x: torch.Tensor) -> None:
    made = x + 1
    with cuda.on(_forked(cuda)):
        used = made * 2
    del made
    x + 3
    del used


def _own_graph(cuda: StandIn) -> Graph:
    capture = cuda.current().capture
    assert capture is not None
    return capture.graph


DEEDS: dict[str, tuple[str, Deed]] = {
    "synchronises the device": ("cudaErrorStreamCaptureUnsupported", lambda c, x: c.synchronize()),
    "synchronises its stream": (
        "cudaErrorStreamCaptureUnsupported",
        lambda c, x: c.synchronize_stream(c.current()),
    ),
    "asks how far its stream is": (
        "cudaErrorStreamCaptureUnsupported",
        lambda c, x: c.query_stream(c.current()),
    ),
    "takes a number out": ("cudaErrorStreamCaptureUnsupported", lambda c, x: x.sum().item()),
    "counts what is not zero": ("cudaErrorStreamCaptureUnsupported", lambda c, x: x.nonzero()),
    "allocates past the pool": ("cudaErrorStreamCaptureUnsupported", lambda c, x: c.allocate(64)),
    "seeds the generator": ("not during capture", lambda c, x: c.manual_seed(0)),
    "goes on after an error": ("cudaErrorStreamCaptureInvalidated", _swallow),
    "waits for another capture": ("cudaErrorStreamCaptureMerge", _another_capture),
    "ends a capture elsewhere": (
        "cudaErrorStreamCaptureUnmatched",
        lambda c, x: c.end(_own_graph(c), _forked(c)),
    ),
    "leaves a stream behind": ("cudaErrorStreamCaptureUnjoined", _leave_behind),
    "waits for what is outside": (
        "cudaErrorStreamCaptureIsolation",
        lambda c, x: c.wait(c.current(), _outside),
    ),
    "uses the default stream": ("cudaErrorStreamCaptureImplicit", _on_default_stream),
    "lets the default stream wait": (
        "cudaErrorStreamCaptureImplicit",
        lambda c, x: c.wait(c.default, _now(c)),
    ),
    "asks about a captured event": (
        "cudaErrorCapturedEvent",
        lambda c, x: c.query_event(_now(c)),
    ),
    "waits on the host for an event": (
        "cudaErrorCapturedEvent",
        lambda c, x: c.synchronize_event(_now(c)),
    ),
    "ends it in another thread": ("cudaErrorStreamCaptureWrongThread", _end_elsewhere),
    "begins a second capture": (
        "cudaErrorIllegalState",
        lambda c, x: c.begin(Graph(), c.current()),
    ),
    "captures the default stream": (
        "capture on the default stream",
        lambda c, x: c.begin(Graph(), c.default),
    ),
    "captures into its own graph": (
        "graph captured twice",
        lambda c, x: c.begin(_own_graph(c), c.stream()),
    ),
    "launches an empty graph": ("replay of no graph", lambda c, x: c.replay(Graph())),
    "launches a graph that is gone": (
        "replay of no graph",
        lambda c, x: c.replay(Graph("reset")),
    ),
    "draws from its own generator": (
        "unregistered generator",
        lambda c, x: torch.rand(3, generator=torch.Generator()),
    ),
    "lets go of what is in use": ("temporary freed early", _let_go),
}


@torch.library.custom_op("nimble_standin::act", mutates_args=())
def act(x: torch.Tensor, deed: str) -> torch.Tensor:
    if _cuda.current().capture is not None:
        DEEDS[deed][1](_cuda, x)
    return x * 2


@act.register_fake
def _(x: torch.Tensor, deed: str) -> torch.Tensor:
    return torch.empty_like(x)


def model(deed: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: (act(x + 1, deed) + x.exp()).relu()


@pytest.fixture(autouse=True)
def fresh() -> None:
    global _cuda
    _cuda = StandIn()
    _outside.recorded, _outside.capture = False, None
    _cuda.record(_outside, _cuda.default)


def test_every_rule_is_broken_by_somebody() -> None:
    assert {rule for rule, _ in DEEDS.values()} == {rule.name for rule in RULES}


@pytest.mark.parametrize("deed", DEEDS)
def test_the_error_names_the_task_and_the_way_out(deed: str) -> None:
    rule = next(rule for rule in RULES if rule.name == DEEDS[deed][0])
    strict = Cuda(_cuda, split=False)
    with pytest.raises(StreamCaptureError) as caught:
        nimble.compile(model(deed), (torch.randn(4),), device=strict, tune="off", progress=False)
    said = str(caught.value)
    assert caught.value.task == "act"
    assert caught.value.rule == rule.name
    assert "task 'act' (nimble_standin.act.default)" in said
    assert "test_capture_rules.py" in said, "the line of the model"
    assert rule.todo in said
    assert _cuda.current().capture is None, "nothing is being captured any more"


SPLIT = [
    deed for deed, (name, _) in DEEDS.items() if any(r.name == name and r.splits for r in RULES)
]


@pytest.mark.parametrize("deed", SPLIT)
def test_what_can_run_eagerly_splits_the_plan(deed: str) -> None:
    x = torch.randn(4)
    engine, cuda = on_standin(model(deed), (x,), _cuda)
    torch.testing.assert_close(engine(x), ((x + 1) * 2 + x.exp()).relu())
    assert cuda.replays == 2, "one part before the task, and one after it"
    said = engine.explain()
    assert "launches      2 captured graphs" in said
    assert "eager         act between them: nimble_standin.act.default" in said
    assert "1 between captured parts" in said


def test_messages_of_the_stand_in_are_those_that_the_rules_look_for() -> None:
    texts = [
        value
        for name, value in vars(cuda_standin).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    ]
    assert len(texts) == len(RULES)
    assert {rule.name for text in texts if (rule := broken_rule(CudaError(text)))} == {
        rule.name for rule in RULES
    }
