"""Schedule → something that replays on this machine's cores.

Every root value has a *slot*: slot 0 is the arena, every other root has one of its own. Native
kernels find their operands as slot plus offset; ATen calls use tensors that lie on the slots.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from nimble import _aten, _core
from nimble.capture.dtypes import TO_TORCH, from_symbol
from nimble.capture.tensors import copy_exactly
from nimble.devices.cpu.calls import native_call
from nimble.devices.cpu.memory import allocate, join_pages
from nimble.devices.device import Recording, Span, fitting
from nimble.errors import NimbleError
from nimble.graph import Arg, DType, Ref, Role, Symbol, Task, Value, verify_memory
from nimble.schedule import Schedule, prove

ARENA = 0
_LONGEST_MEASUREMENT = 0.5
"""Seconds."""
_TURNS = 2
"""How many of the largest state there is room for while a replay is measured."""
_OWNED = (Role.PARAMETER, Role.CONSTANT, Role.STATE)


class Replay:
    """A proven schedule bound to memory. Call it with the graph's inputs in order. Replays that are
    given the same `arena` must not run at the same time."""

    def __init__(
        self,
        schedule: Schedule,
        tensors: Mapping[str, torch.Tensor],
        arena: torch.Tensor | None = None,
    ) -> None:
        prove(schedule)
        verify_memory(schedule.graph)
        self.schedule = schedule
        self._tensors = dict(tensors)
        self.graph = schedule.graph
        roots = [v for v in self.graph.roots() if v.dtype is not DType.TOKEN]
        outside = [root for root in roots if root.role is not Role.INTERMEDIATE]
        self._slots = {root.id: slot for slot, root in enumerate(outside, start=1)}
        states = [root for root in outside if root.role is Role.STATE]
        self._written = {root.id: slot for slot, root in enumerate(states, start=len(outside) + 1)}
        """Where native kernels write a state: another slot than where it is read, for the same
        memory but while the replay is measured."""
        self._kept: dict[int, torch.Tensor] = {}
        self._arena = allocate(schedule.arena_bytes) if arena is None else arena
        if self._arena.numel() < schedule.arena_bytes:
            raise NimbleError(f"an arena of {self._arena.numel()} bytes for {schedule.arena_bytes}")
        self._table = _aten.Table(len(outside) + len(states) + 1, len(self.graph.values))
        self._table.memory(ARENA, self._arena)
        for root in outside:
            if root.role in _OWNED:
                self._keep(root, tensors)
            else:
                self._table.storage(self._slots[root.id], root.span)
        for written in self._written:
            join_pages(self._kept[self._slots[written]])
        for value in self.graph.values:
            if value.dtype is not DType.TOKEN and self._has_memory(value.id):
                self._place(value)
        looked_at = (*self.graph.readers, *self.graph.outputs)
        self._needed = {self.graph.content(v).id for v in looked_at}
        self.kinds: dict[str, str] = {}
        """Task name → how it runs: `native`, `out`, `copy` or `inplace`."""
        self._calls: list[Any] = []
        self._tape = self._record_tape()
        self._table.plan(
            self._tape.address,
            _core.replay_api,
            [self._input(id) for id in self.graph.inputs],
            *self._outputs(),
            self._mutated(),
            repeatable=not self._mutated() and not any(self.graph.roots(Role.STATE)),
        )

    def __call__(
        self, inputs: Sequence[torch.Tensor], watch: _aten.Watch | None = None
    ) -> list[torch.Tensor]:
        try:
            return self._table.replay(inputs, watch)
        except Exception as error:
            self.blame(error)
            raise

    def bind(self, inputs: Sequence[torch.Tensor]) -> Bound:
        """This replay on inputs and results that stay where they are."""
        return Bound(self, self._table.bind(inputs))

    @property
    def has_state(self) -> bool:
        """Whether a replay updates memory that the next one reads."""
        return any(r.dtype is not DType.TOKEN for r in self.graph.roots(Role.STATE))

    def twin(self, schedule: Schedule | None = None) -> Replay:
        """The same schedule, or another of the same model, on the same parameters, with an arena of
        its own."""
        return Replay(schedule or self.schedule, self._tensors)

    def rebind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Use other tensors, of the same type, as the memory of the roots named."""
        self._tensors |= tensors
        for root in self.graph.roots(*_OWNED):
            if root.name in tensors:
                self._keep(root, tensors)

    def measure(self, inputs: list[torch.Tensor], runs: int = 9) -> list[list[Span]]:
        """Replays with every task timed, each after one that is not, so that caches are as warm as
        in use. The model's state and the random generator stay as they were, and so do the inputs.
        """
        recordings: list[list[Span]] = []
        with torch.random.fork_rng(devices=[]), self._scratch_state() as renew:
            end = time.perf_counter() + _LONGEST_MEASUREMENT
            while not recordings or (len(recordings) < runs and time.perf_counter() < end):
                renew()
                self._rehearse(inputs)
                renew()
                recordings.append(self.recorded(lambda: self._rehearse(inputs)).spans)
        return recordings

    def recorded(self, run: Callable[[], object]) -> Recording:
        """When each task ran in a replay that `run` makes."""
        self._tape.recording = True
        try:
            run()
        finally:
            self._tape.recording = False
        spans = [Span(*record) for record in self._tape.recorded]
        return Recording(spans, self._tape.lasted_ns)

    def _rehearse(self, inputs: list[torch.Tensor]) -> None:
        """A replay that leaves its inputs as they were."""
        written = set(self._mutated())
        self(
            [
                # PyTorch copies with threads that stay awake, and would disturb the replay.
                copy_exactly(tensor) if self._slots[id] in written else tensor
                for id, tensor in zip(self.graph.inputs, inputs, strict=True)
            ]
        )

    @contextlib.contextmanager
    def _scratch_state(self) -> Iterator[Callable[[], None]]:
        """Lets replays write elsewhere instead of to the model's state: to memory that nobody
        reads, where a state lies upon others that are written much earlier or later. Of what ATen
        writes, and of whole numbers, there are copies. The latter may say where something is to be
        written next, so the function given makes them anew."""
        in_place = {
            self.graph.homes[v]
            for task in self.graph.tasks
            for v in task.writes
            if task.kernel != "native"
        }
        copies = {
            root: copy_exactly(self._kept[self._slots[root]])
            for root in self._written
            if root in in_place or not self._kept[self._slots[root]].is_floating_point()
        }
        others = {root: self.graph[root].span for root in self._written if root not in copies}
        nowhere = allocate(min(sum(others.values()), _TURNS * max(others.values(), default=0)))
        start = 0

        def renew() -> None:
            for root, copy in copies.items():
                if not copy.is_floating_point():
                    copy.copy_(self._kept[self._slots[root]])

        for root, copy in copies.items():
            self._table.memory(self._slots[root], copy)
            self._table.memory(self._written[root], copy)
        for root, span in others.items():
            start = start if start + span <= nowhere.numel() else 0
            self._table.memory(self._written[root], nowhere[start : start + span])
            start += span
        try:
            yield renew
        finally:
            for root in self._written:
                self._bind(root)

    # Binding

    def _keep(self, root: Value, tensors: Mapping[str, torch.Tensor]) -> None:
        self._kept[self._slots[root.id]] = fitting(root, tensors)
        self._bind(root.id)

    def _bind(self, root: int) -> None:
        memory = self._kept[self._slots[root]]
        self._table.memory(self._slots[root], memory)
        if root in self._written:
            self._table.memory(self._written[root], memory)

    def _has_memory(self, id: int) -> bool:
        """False for intermediates that no task touches."""
        return self.graph.homes[id] in self._slots or self.schedule.offsets[id] is not None

    def _slot_and_offset(self, id: int, written: bool = False) -> tuple[int, int]:
        home = self.graph.homes[id]
        if self.graph[home].role is Role.INTERMEDIATE:
            offset = self.schedule.offsets[id]
            assert offset is not None
            return ARENA, offset
        slots = self._written if written and home in self._written else self._slots
        return slots[home], self.graph[id].offset

    def _place(self, value: Value) -> None:
        slot, offset = self._slot_and_offset(value.id)
        dtype = TO_TORCH[value.dtype]
        self._table.value(value.id, slot, dtype, list(value.shape), list(value.strides), offset)

    def _record_tape(self) -> _core.Tape:
        streams = self.schedule.streams
        tape = _core.Tape(
            max(len(streams), 1), len(self.graph.tasks), 1 + len(self._slots) + len(self._written)
        )
        waits: dict[int, list[int]] = {}
        for wait in self.schedule.waits:
            waits.setdefault(wait.task, []).append(wait.on)
        for number, stream in enumerate(streams):
            for task in stream:
                for on in waits.get(task, ()):
                    tape.wait(number, on)
                self._add(tape, number, task)
        tape.finish()
        return tape

    def _add(self, tape: _core.Tape, stream: int, number: int) -> None:
        task = self.graph.tasks[number]
        if task.kernel == "native":
            native = native_call(self.graph, task)
            if native is None:
                raise NimbleError(f"task {task.name!r} ({task.op}) has no kernel")
            operands = [self._slot_and_offset(id, id in task.writes) for id in native.operands]
            tape.native(stream, number, native.kernel, operands, native.ints, native.floats)
            self.kinds[task.name] = "native"
            return
        call = self._call(task)
        self._calls.append(call)
        self.kinds[task.name] = call.kind
        tape.call(stream, number, call.fn, call.context)

    def _call(self, task: Task) -> Any:
        namespace, name, overload = task.op.split(".")
        made = [v for v in task.results if v is not None]
        unused = [v for v in made if self.graph.content(v).id not in self._needed]
        inplace = any(self.graph[v].overwrites is not None for v in task.writes)
        try:
            return self._table.call(
                f"{namespace}::{name}",
                "" if overload == "default" else overload,
                [_to_python(arg) for arg in task.args],
                {key: _to_python(arg) for key, arg in task.kwargs},
                [] if inplace else list(task.results),
                unused,
            )
        except ValueError as error:
            raise NimbleError(f"task {task.name!r} ({task.op}) cannot be bound: {error}") from error

    def _input(self, id: int) -> tuple[int, torch.dtype, list[int], list[int]]:
        value = self.graph[id]
        dtype = TO_TORCH[value.dtype]
        return self._slots[id], dtype, list(value.shape), list(value.strides)

    def _outputs(self) -> tuple[list[tuple[Any, ...]], list[int]]:
        """What each distinct output is made from, and which of those each output is."""
        distinct = list(dict.fromkeys(self.graph.outputs))
        specs = [self._output(self.graph[id]) for id in distinct]
        return specs, [distinct.index(id) for id in self.graph.outputs]

    def _output(self, value: Value) -> tuple[Any, ...]:
        home = self.graph[self.graph.homes[value.id]]
        whole = value.base is None
        if home.role is Role.INPUT:
            index = self.graph.inputs.index(home.id)
            if whole:
                return ("input", index)
            return ("input_view", index, *_geometry(value)[1:])
        if home.role in _OWNED:
            slot = self._slots[home.id]
            return ("memory", slot) if whole else ("memory_view", slot, *_geometry(value)[1:])
        return ("fresh", self._slots[home.id], *_geometry(value))

    def _mutated(self) -> list[int]:
        versions = (v for v in self.graph.values if v.overwrites is not None)
        homes = dict.fromkeys(self.graph.homes[v.id] for v in versions)
        return [self._slots[home] for home in homes if home in self._slots]

    def blame(self, error: Exception) -> None:
        """Say which task failed."""
        failed = self._tape.failed_task
        if failed is not None:
            task = self.graph.tasks[failed]
            error.add_note(f"in task {task.name!r} ({task.op}) from {task.origin or 'the model'}")


class Bound:
    """A replay on inputs and results that stay. Made by `Replay.bind`."""

    def __init__(self, replay: Replay, bound: _aten.Bound) -> None:
        self.outputs = bound.outputs
        """Written by every run."""
        self._replay = replay
        self._bound = bound

    def run(self, watch: _aten.Watch | None = None) -> None:
        try:
            self._bound.run(watch)
        except Exception as error:
            self._replay.blame(error)
            raise


def _geometry(value: Value) -> tuple[torch.dtype, list[int], list[int], int]:
    return TO_TORCH[value.dtype], list(value.shape), list(value.strides), value.offset


def _to_python(arg: Arg) -> Any:
    if isinstance(arg, Ref):
        return _aten.Ref(arg.id)
    if isinstance(arg, DType):
        return TO_TORCH[arg]
    if isinstance(arg, Symbol):
        return from_symbol(arg)
    if isinstance(arg, tuple):
        return [_to_python(item) for item in arg]
    return arg
