"""A strict stand-in for CUDA, on the CPU: raises where stream capture would, and replays what was
captured in any order that streams and events allow.

An operator that is launched while its stream is capturing is written down, with everything that it
comes after, and not run. A replay runs what was written down on real threads, one for each stream,
in an order that depends on a seed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from cuda_orders import run_in_some_order
from cuda_recorder import Recorder
from torch.multiprocessing.reductions import StorageWeakRef

from nimble.devices.sim import Gpu, find_gpu

UNSUPPORTED = "operation not permitted when stream is capturing"
INVALIDATED = "operation failed due to a previous error during capture"
MERGE = "operation would result in a merge of separate capture sequences"
UNMATCHED = "capture was not initiated in this stream"
UNJOINED = "capturing stream has unjoined work"
ISOLATION = "dependency created on uncaptured work in another stream"
IMPLICIT = "operation would make the legacy stream depend on a capturing blocking stream"
CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream"
WRONG_THREAD = "attempt to terminate a thread-local capture sequence from another thread"
ILLEGAL_STATE = "the operation cannot be performed in the present state"
DEFAULT_STREAM = "CUDA graphs must be captured on a non-default stream"
CAPTURED_TWICE = "This CUDAGraph instance already owns a captured graph"
NEVER_CAPTURED = "Called CUDAGraph::replay without a preceding successful capture"
NO_GENERATOR = "Attempt to increase offset for a CUDA generator not in capture mode"
NOT_NOW = (
    "Cannot call CUDAGeneratorImpl::set_current_seed during CUDA graph capture. If you need this "
    "call to be captured, please file an issue"
)
FREED_EARLY = "a block of the graph's pool was freed while another stream used it"


class CudaError(RuntimeError):
    def __init__(self, said: str) -> None:
        super().__init__(f"CUDA error: {said}")
        self.said = said


@dataclass(eq=False)
class Stream:
    name: str
    capture: Capture | None = None
    frontier: frozenset[int] = frozenset()
    """While capturing: what the next operator comes directly after."""


@dataclass(eq=False)
class Event:
    capture: Capture | None = None
    frontier: frozenset[int] = frozenset()
    recorded: bool = False
    time: int = 0


@dataclass(frozen=True)
class Record:
    """One operator as it was launched."""

    stream: str
    task: str
    before: frozenset[int]
    run: Callable[[], None]


@dataclass
class Temporary:
    """A tensor of the graph's pool: who made it, who used it, and whether it was let go of."""

    memory: bytearray
    stream: Stream
    held: StorageWeakRef
    start: int
    uses: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Capture:
    origin: Stream
    thread: int
    graph: Graph
    streams: list[Stream]
    temporaries: list[Temporary] = field(default_factory=list)
    void: bool = False

    def fail(self, said: str) -> CudaError:
        """An error that ends the capture, as every error does."""
        self.void = True
        return CudaError(said)

    def known(self, frontier: frozenset[int]) -> set[int]:
        """All that happened when a frontier is reached."""
        found: set[int] = set()
        waiting = list(frontier)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self.graph.records[number].before
        return found


@dataclass(eq=False)
class Graph:
    state: str = "empty"
    records: list[Record] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)


class StandIn:
    """What `nimble.devices.cuda.api.Api` asks for, and more for operators that misbehave."""

    place = torch.device("cpu")

    def __init__(self, seed: int = 0, *, racing: bool = False) -> None:
        self.seed = seed
        self.racing = racing
        self.default = Stream("default")
        self.elapsed: list[int] = []
        """What the next measurements give; else the number of operators in between."""
        self.done: Callable[[str], None] = lambda task: None
        """Told whenever a task of a replay is done."""
        self.replays = 0
        self.launched = 0
        self._streams = 0
        self._local = threading.local()
        self._captures: list[Capture] = []

    def gpu(self) -> Gpu:
        return find_gpu("v100")

    # Streams and events

    def stream(self) -> Stream:
        self._streams += 1
        return Stream(f"stream {self._streams}")

    def current(self) -> Stream:
        return getattr(self._local, "stream", self.default)

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before = self.current()
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def event(self, *, timed: bool = False) -> Event:
        return Event()

    def record(self, event: Event, stream: Stream) -> None:
        self._check(stream)
        event.recorded, event.capture, event.time = True, stream.capture, self.launched
        event.frontier = stream.frontier

    def wait(self, stream: Stream, event: Event) -> None:
        self._check(stream)
        mine, theirs = stream.capture, event.capture
        if not event.recorded:
            return  # As CUDA has it: what was never recorded is over.
        if mine is None and theirs is None:
            return  # What is not captured runs at once.
        if theirs is None:
            assert mine is not None
            raise mine.fail(ISOLATION)
        if theirs not in self._captures:
            raise (mine or theirs).fail(CAPTURED_EVENT)
        if mine is None:
            if stream is self.default:
                raise theirs.fail(IMPLICIT)
            stream.capture = theirs
            theirs.streams.append(stream)
        elif mine is not theirs:
            theirs.void = True
            raise mine.fail(MERGE)
        stream.frontier |= event.frontier

    def elapsed_ns(self, start: Event, stop: Event) -> int:
        return self.elapsed.pop(0) if self.elapsed else (stop.time - start.time) * 1000

    def synchronize(self) -> None:
        """The whole device: not while any of its streams captures in this thread."""
        if mine := self._mine():
            raise mine.fail(UNSUPPORTED)

    def synchronize_stream(self, stream: Stream) -> None:
        if stream.capture is not None:
            raise stream.capture.fail(UNSUPPORTED)

    query_stream = synchronize_stream

    def synchronize_event(self, event: Event) -> None:
        if event.capture is not None:
            raise event.capture.fail(CAPTURED_EVENT)

    query_event = synchronize_event

    # Memory

    def allocate(self, nbytes: int) -> torch.Tensor:
        """cudaMalloc, which may wait for the device."""
        if mine := self._mine():
            raise mine.fail(UNSUPPORTED)
        return torch.full((nbytes,), 255, dtype=torch.uint8)

    def allocated(self) -> int:
        return 0

    # Graphs

    def graph(self) -> Graph:
        return Graph(generators=[self.generator()])

    def begin(self, graph: Graph, stream: Stream) -> None:
        if stream is self.default:
            raise self._fail(DEFAULT_STREAM)
        if graph.state != "empty":
            raise self._fail(CAPTURED_TWICE)
        if stream.capture is not None:
            raise self._fail(ILLEGAL_STATE)
        capture = Capture(stream, threading.get_ident(), graph, [stream])
        stream.capture, graph.state = capture, "capturing"
        self._captures.append(capture)

    def end(self, graph: Graph, stream: Stream) -> None:
        capture = stream.capture
        if capture is None or capture.origin is not stream or capture.graph is not graph:
            raise capture.fail(UNMATCHED) if capture is not None else CudaError(UNMATCHED)
        if capture.thread != threading.get_ident():
            raise capture.fail(WRONG_THREAD)
        try:
            if capture.void:
                raise CudaError(INVALIDATED)
            self._check_freed(capture)
            reached = capture.known(stream.frontier)
            for other in capture.streams:
                if not other.frontier <= reached:
                    raise capture.fail(UNJOINED)
        except CudaError:
            graph.state = "void"
            raise
        else:
            graph.state = "captured"
        finally:
            for other in capture.streams:
                other.capture, other.frontier = None, frozenset()
            self._captures.remove(capture)

    @contextlib.contextmanager
    def capture(self, graph: Graph, stream: Stream) -> Iterator[None]:
        self.synchronize()
        with self.on(stream):
            self.begin(graph, stream)
            try:
                with Recorder(self):
                    yield
            except BaseException:
                with contextlib.suppress(CudaError):
                    self.end(graph, stream)
                raise
            self.end(graph, stream)

    def replay(self, graph: Graph) -> None:
        if graph.state != "captured":
            raise self._fail(NEVER_CAPTURED)
        if self.current().capture is not None:
            raise self._fail(UNSUPPORTED)
        self.replays += 1
        left: dict[str, int] = {}
        for record in graph.records:
            left[record.task] = left.get(record.task, 0) + 1

        def over(record: Record) -> None:
            left[record.task] -= 1
            if not left[record.task]:
                self.done(record.task)

        run_in_some_order(graph.records, self.seed, over, racing=self.racing)
        self.launched += len(graph.records)

    def reset(self, graph: Graph) -> None:
        graph.state = "reset"

    # The rest

    def manual_seed(self, seed: int) -> None:
        if self.current().capture is not None:
            raise self._fail(NOT_NOW)
        self.generator().manual_seed(seed)

    def generator(self) -> torch.Generator:
        return torch.default_generator

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        before = getattr(self._local, "task", "")
        self._local.task = name
        try:
            yield
        finally:
            self._local.task = before
            self.launched += self.current().capture is None

    @contextlib.contextmanager
    def tuned(self) -> Iterator[None]:
        yield

    def convolution(self, image: Any, weight: Any, bias: Any, *how: Any) -> str:
        """As PyTorch chooses on a GPU, roughly."""
        _, _, _, transposed, _, groups = how
        if transposed or image.dim() != 4 or not image.is_floating_point():
            return "other"
        return "depthwise" if groups == image.shape[1] == weight.shape[0] > 1 else "cudnn"

    # What the recorder asks

    def launch(self, func: Any, args: Any, kwargs: Any, make: Callable[[], Any]) -> Any:
        """An operator on the current stream."""
        stream = self.current()
        self._check(stream)
        mine = self._mine()
        if stream.capture is None:
            if mine is not None and stream is self.default:
                # CUDA lets this pass where the capturing stream does not block; but the work would
                # be missing from every replay.
                raise mine.fail(IMPLICIT)
            self.launched += 1
            return func(*args, **kwargs)
        generator = kwargs.get("generator")
        if generator is not None and generator not in stream.capture.graph.generators:
            raise stream.capture.fail(NO_GENERATOR)
        return make()

    def write_down(self, run: Callable[[], None], tensors: list[torch.Tensor]) -> None:
        stream = self.current()
        capture = stream.capture
        assert capture is not None
        self._check_freed(capture)
        number = len(capture.graph.records)
        task = getattr(self._local, "task", "")
        capture.graph.records.append(Record(stream.name, task, stream.frontier, run))
        stream.frontier = frozenset([number])
        for temporary in capture.temporaries:
            stop = temporary.start + len(temporary.memory)
            if any(temporary.start <= t.data_ptr() < stop for t in tensors if t.numel()):
                temporary.uses.append(number)

    def from_pool(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """New memory of the graph's pool, for the replay and for whoever launched the operator."""
        stream = self.current()
        assert stream.capture is not None
        steps = sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True))
        span = (steps + 1) if like.numel() else 0
        memory = bytearray(b"\xff" * max(1, span * like.element_size()))

        def tensor() -> torch.Tensor:
            if not span:
                return torch.empty(like.shape, dtype=like.dtype)
            whole = torch.frombuffer(memory, dtype=like.dtype, count=span)
            return whole.as_strided(like.shape, like.stride())

        kept, handed = tensor(), tensor()
        held = StorageWeakRef(handed.untyped_storage())
        made = Temporary(memory, stream, held, handed.data_ptr())
        stream.capture.temporaries.append(made)
        return kept, handed

    def refuse_to_wait(self) -> CudaError:
        return self._fail(UNSUPPORTED)

    def not_holding(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same bytes; of a temporary, without keeping it from being let go of."""
        capture = self.current().capture
        for temporary in capture.temporaries if capture is not None else ():
            offset = tensor.data_ptr() - temporary.start
            if tensor.numel() and 0 <= offset < len(temporary.memory):
                whole = torch.frombuffer(temporary.memory, dtype=tensor.dtype, offset=offset)
                return whole.as_strided(tensor.shape, tensor.stride())
        return tensor

    def _check_freed(self, capture: Capture) -> None:
        """A block that was let go of serves its stream's next allocation: whoever else uses it must
        be known to be done by then."""
        for temporary in tuple(capture.temporaries):
            if not temporary.held.expired():
                continue
            reached = capture.known(temporary.stream.frontier)
            if not set(temporary.uses) <= reached:
                raise capture.fail(FREED_EARLY)
            capture.temporaries.remove(temporary)

    def _check(self, stream: Stream) -> None:
        if stream.capture is not None and stream.capture.void:
            raise CudaError(INVALIDATED)

    def _mine(self) -> Capture | None:
        """The capture under way in this thread."""
        me = threading.get_ident()
        return next((c for c in reversed(self._captures) if c.thread == me), None)

    def _fail(self, said: str) -> CudaError:
        mine = self._mine()
        return CudaError(said) if mine is None else mine.fail(said)
