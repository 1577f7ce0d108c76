"""A schedule as captured graphs that any thread may call: inputs copied in, results fresh."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from nimble import _aten
from nimble.capture.dtypes import TO_TORCH
from nimble.capture.tensors import copy_exactly
from nimble.devices.cuda.api import Api, Stream
from nimble.devices.cuda.launch import Launch
from nimble.devices.cuda.memory import OWNED, Arena, Memory, room, tensor_on, written
from nimble.devices.device import Recording, Span, fitting
from nimble.errors import DeviceError
from nimble.graph import DType, Role, Value, verify_memory
from nimble.schedule import Schedule, prove


class CudaReplay:
    """Replays of one plan, one at a time."""

    native = False

    def __init__(
        self,
        api: Api,
        schedule: Schedule,
        eager: Mapping[str, str],
        order: Sequence[int],
        tensors: Mapping[str, torch.Tensor],
        arena: Arena,
        example: Sequence[torch.Tensor],
        *,
        tuned: bool = False,
    ) -> None:
        prove(schedule)
        verify_memory(schedule.graph)
        self.schedule = schedule
        self.graph = schedule.graph
        self.eager = dict(eager)
        """Task → why it runs between captured parts."""
        self.arena = arena
        self._api = api
        self._order = order
        """In which tasks are launched."""
        self._tensors = dict(tensors)
        self._tuned = tuned
        self._streams: list[Stream] = [api.stream() for _ in schedule.streams] or [api.stream()]
        self._states = [r.name for r in self.graph.roots(Role.STATE) if r.dtype is not DType.TOKEN]
        self._written = [
            (self.graph.inputs.index(id), id) for id in written(self.graph, Role.INPUT)
        ]
        """Inputs that the model updates: their places, and values."""
        self._look_at_states()
        self._epoch = 0
        """Another number when a tensor of the model lies elsewhere."""
        self._workspace = 0
        with arena.turn():
            arena.reserve(room(schedule)[1])
            self._static = self.captured_on({}, example)

    def __len__(self) -> int:
        return 1

    @property
    def kinds(self) -> dict[str, str]:
        tasks = zip(self.graph.tasks, self._static.launch.calls, strict=True)
        return {t.name: "eager" if t.name in self.eager else call.kind for t, call in tasks}

    def __call__(
        self, inputs: Sequence[torch.Tensor], watch: _aten.Watch | None = None
    ) -> list[torch.Tensor]:
        self.check(inputs)
        refuse_changes(watch)
        with self.arena.turn(), torch.no_grad():
            self._static = self.renewed(self._static, {}, inputs)
            self._fill(inputs)
            self._static.launch.run()
            for index, id in self._written:
                inputs[index].copy_(self._static.memory[id])
            results = self.new_results()
            for id, result in results.items():
                result.copy_(self._static.memory[id])
            self.count_versions()
        return self.shown(inputs, results)

    def bind(self, inputs: Sequence[torch.Tensor]) -> CudaBound:
        """A graph of its own on inputs that stay where they are, and results that do."""
        self.check(inputs)
        return CudaBound(self, list(inputs))

    def rebind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Use other tensors, of the same type, as the memory of the roots named."""
        for root in self.graph.roots(*OWNED):
            if root.name in tensors:
                new, old = fitting(root, tensors), self._tensors[root.name]
                self._epoch += new.data_ptr() != old.data_ptr()
        self._tensors |= tensors
        self._look_at_states()

    def measure(self, inputs: list[torch.Tensor]) -> list[Span]:
        """Every task timed by events, not captured: launching takes the host longer than a graph
        does, so that gaps between tasks are wider here. The model's state is left alone."""
        with self.arena.turn(), self._unchanged():
            self._static = self.renewed(self._static, {}, inputs)
            self._fill(inputs)
            begin = self._api.event(timed=True)
            self._api.record(begin, self._api.current())
            timed = self._static.launch.timed()
            self._api.synchronize()
        lane = {t: lane for lane, stream in enumerate(self.schedule.streams) for t in stream}
        since = self._api.elapsed_ns
        return [Span(t, lane[t], since(begin, a), since(begin, b)) for t, a, b in timed]

    def recorded(self, call: Callable[[], object]) -> Recording:
        raise DeviceError(
            "tasks inside of a captured graph cannot be timed: use a profiler of CUDA, or "
            "engine.timeline(), which runs them apart"
        )

    def times_ns(self, inputs: Sequence[torch.Tensor], runs: int) -> list[int]:
        """How long whole replays took; the model's state is left alone."""
        found = []
        with self.arena.turn(), self._unchanged():
            self._fill(inputs)
            for _ in range(runs):
                start, stop = self._api.event(timed=True), self._api.event(timed=True)
                self._api.record(start, self._api.current())
                self._static.launch.run()
                self._api.record(stop, self._api.current())
                self._api.synchronize()
                found.append(self._api.elapsed_ns(start, stop))
        return found

    def remarks(self) -> list[tuple[str, str]]:
        launches = self._static.launch.launches
        lines = [("launches", f"{launches} captured graph{'' if launches == 1 else 's'}")]
        lines += [("eager", f"{task} between them: {why}") for task, why in self.eager.items()]
        temporary = self._static.launch.temporary
        held = (
            f"of the arena: {sum(temporary.values()):,} B made by {len(temporary)} tasks, "
            f"{self._workspace:,} B of libraries; kept until the capture ended"
        )
        lines.append(("outside", held))
        return lines

    def check(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raise Mismatch where a tensor does not fit the plan."""
        for index, (id, tensor) in enumerate(zip(self.graph.inputs, inputs, strict=True)):
            why = self._why_unfit(self.graph[id], tensor)
            if why is None and self._ranges and self._is_in_state(tensor):
                why = "shares memory with a state that the call writes"
            if why is not None:
                raise _aten.Mismatch(index, why)
        for index, _ in self._written:
            for other, tensor in enumerate(inputs):
                if other != index and _overlap(_range(inputs[index]), _range(tensor)):
                    why = f"is written, but shares memory with input {other}"
                    raise _aten.Mismatch(index, why)

    def _is_in_state(self, tensor: torch.Tensor) -> bool:
        """States have no bytes in common, so that only the last which begins before the tensor ends
        can have some in common with it."""
        mine = _range(tensor)
        place = bisect.bisect_left(self._ranges, (mine[1], 0)) - 1
        return place >= 0 and _overlap(mine, self._ranges[place])

    def _look_at_states(self) -> None:
        """Note where the states lie, and of which PyTorch counts the versions."""
        held = [self._tensors[name] for name in self._states]
        self._ranges = sorted(_range(tensor) for tensor in held if tensor.numel())
        self._counted = [tensor for tensor in held if not tensor.is_inference()]

    def _why_unfit(self, value: Value, tensor: torch.Tensor) -> str | None:
        dtype = TO_TORCH[value.dtype]
        if tensor.device != self._api.place:
            return f"is on {tensor.device}, expected {self._api.place}"
        if tensor.dtype != dtype:
            return f"has dtype {tensor.dtype}, expected {dtype}"
        if tuple(tensor.shape) != value.shape:
            return f"has shape {list(tensor.shape)}, expected {list(value.shape)}"
        strides = zip(value.shape, tensor.stride(), value.strides, strict=True)
        if tensor.numel() and any(n > 1 and mine != wanted for n, mine, wanted in strides):
            return f"has strides {list(tensor.stride())}, expected {list(value.strides)}"
        return None

    # Making

    def captured_on(
        self, given: Mapping[int, torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> Captured:
        """The schedule, warmed up and captured. `given` are inputs and results that lie elsewhere
        than in the block; those that lie there are filled with `inputs`."""
        memory = Memory(self.schedule, self.arena.block, self._tensors, given)
        launch = Launch(
            self._api,
            self.schedule,
            self.eager,
            self._order,
            memory,
            self._streams,
            tuned=self._tuned,
        )
        updated = [memory[id] for _, id in self._written if id in given]
        with self._unchanged(updated):
            for id, tensor in zip(self.graph.inputs, inputs, strict=True):
                if id not in given:
                    memory[id].copy_(tensor)
            # In this thread and on this memory: libraries remember what they chose by both, and
            # cannot choose while a stream is capturing.
            before = self._api.allocated()
            launch.warm_up()
            self._api.synchronize()
            self._workspace = max(self._workspace, self._api.allocated() - before)
        launch.capture()
        return Captured(memory, launch, self._epoch)

    def renewed(
        self, old: Captured, given: Mapping[int, torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> Captured:
        """The same on where memory is by now; captured again if any of it was moved."""
        if old.epoch == self._epoch and old.memory.block is self.arena.block:
            return old
        return self.captured_on(given, inputs)

    def _fill(self, inputs: Sequence[torch.Tensor]) -> None:
        for id, tensor in zip(self.graph.inputs, inputs, strict=True):
            self._static.memory[id].copy_(tensor)

    # Parts of a call

    def count_versions(self) -> None:
        """Tell PyTorch that the states were written."""
        if self._counted:
            torch.autograd.graph.increment_version(self._counted)

    def shown(
        self, inputs: Sequence[torch.Tensor], roots: Mapping[int, torch.Tensor]
    ) -> list[torch.Tensor]:
        """What the model returns, of new memory (`roots`), the caller's and the model's own."""
        made: dict[int, torch.Tensor] = {}
        for id in self.graph.outputs:
            if id not in made:
                made[id] = self._shown(self.graph[id], inputs, roots)
        return [made[id] for id in self.graph.outputs]

    def _shown(
        self, value: Value, inputs: Sequence[torch.Tensor], roots: Mapping[int, torch.Tensor]
    ) -> torch.Tensor:
        home = self.graph[self.graph.homes[value.id]]
        if home.role is Role.INPUT:
            whole = inputs[self.graph.inputs.index(home.id)]
        elif home.role is Role.OUTPUT:
            whole = roots[home.id]
        else:
            whole = self._tensors[home.name]
        if value.base is None:
            return whole
        start = int(whole.storage_offset()) * whole.element_size() + value.offset
        if value.dtype is home.dtype:
            at = start // value.dtype.itemsize
            return torch.as_strided(whole, value.shape, value.strides, at)
        storage = whole.untyped_storage()
        return tensor_on(storage, start, value.dtype, value.shape, value.strides)

    def new_results(self) -> dict[int, torch.Tensor]:
        """Memory for results, by root."""
        return {
            root.id: torch.empty_strided(
                root.shape, root.strides, dtype=TO_TORCH[root.dtype], device=self._api.place
            )
            for root in self.graph.roots(Role.OUTPUT)
        }

    @contextlib.contextmanager
    def _unchanged(self, others: Sequence[torch.Tensor] = ()) -> Iterator[None]:
        """The model's state, the random generator and `others` are as before afterwards."""
        generator = self._api.generator()
        random = generator.get_state()
        held = [*(self._tensors[name] for name in self._states), *others]
        copies = [copy_exactly(tensor) for tensor in held]
        try:
            with torch.no_grad():
                yield
        finally:
            generator.set_state(random)
            with torch.no_grad():
                for tensor, before in zip(held, copies, strict=True):
                    tensor.copy_(before)


@dataclass(frozen=True, slots=True)
class Captured:
    """A launch, the memory that it is bound to, and since when."""

    memory: Memory
    launch: Launch
    epoch: int


class CudaBound:
    """Graphs captured on a caller's own tensors: nothing is copied in or out."""

    def __init__(self, replay: CudaReplay, inputs: list[torch.Tensor]) -> None:
        self._replay = replay
        self._inputs = inputs
        self._at = [tensor.data_ptr() for tensor in inputs]
        roots = replay.new_results()
        self._given = {**dict(zip(replay.graph.inputs, inputs, strict=True)), **roots}
        self.outputs = replay.shown(inputs, roots)
        """Written by every run."""
        with replay.arena.turn():
            self._captured = replay.captured_on(self._given, inputs)

    def run(self, watch: _aten.Watch | None = None) -> None:
        replay = self._replay
        replay.check(self._inputs)
        refuse_changes(watch)
        for index, (tensor, at) in enumerate(zip(self._inputs, self._at, strict=True)):
            if tensor.data_ptr() != at:
                raise _aten.Mismatch(index, "lies elsewhere than when it was bound")
        with replay.arena.turn(), torch.no_grad():
            self._captured = replay.renewed(self._captured, self._given, self._inputs)
            self._captured.launch.run()
            replay.count_versions()


def refuse_changes(watch: _aten.Watch | None) -> None:
    if watch is not None and watch.changed():
        raise _aten.Changed


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses from a tensor's first byte to after its last."""
    if not tensor.numel():
        return 0, 0
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (steps + 1) * tensor.element_size()


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
