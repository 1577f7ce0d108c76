"""A schedule on one memory, issued to streams with events for waits, and captured so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch

from nimble.devices.cuda.api import Api, Event, Graph, Stream
from nimble.devices.cuda.calls import Call, make_call
from nimble.devices.cuda.memory import Memory
from nimble.devices.cuda.parts import Part, parts
from nimble.devices.cuda.rules import broken_rule, refusal
from nimble.errors import NimbleError
from nimble.schedule import Schedule


class UncapturedError(NimbleError):
    """A task has to run between captured parts."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(why)
        self.task = task
        self.why = why


class Launch:
    """The parts of a schedule, each one launch of a captured graph, or tasks that run eagerly."""

    def __init__(
        self,
        api: Api,
        schedule: Schedule,
        eager: Mapping[str, str],
        order: Sequence[int],
        memory: Memory,
        streams: Sequence[Stream],
        *,
        tuned: bool = False,
    ) -> None:
        graph = schedule.graph
        self._api = api
        self._graph = graph
        self._streams = streams
        self._tuned = tuned
        self._parts = parts(schedule, eager, order)
        self._graphs: list[Graph | None] = []
        self.temporary: dict[str, int] = {}
        """Task name → bytes that it took outside of the arena while it was captured."""
        read = {graph.content(v).id for v in (*graph.readers, *graph.outputs)}
        unread = {v.id for v in graph.values if graph.content(v.id).id not in read}
        self.calls: list[Call] = [
            make_call(graph, task, memory.__getitem__, unread, api) for task in graph.tasks
        ]

    @property
    def launches(self) -> int:
        return sum(part.captured for part in self._parts)

    def warm_up(self) -> None:
        """Run once without capturing, on the streams that will be captured: libraries make their
        handles and workspaces, and choose algorithms."""
        with self._below_autograd(), self._after_caller():
            for part in self._parts:
                self._issue(part)

    def capture(self) -> None:
        """Record every part that can be. UncapturedError if a task must run between them."""
        with self._below_autograd():
            for part in self._parts:
                self._graphs.append(self._captured(part) if part.captured else None)

    def run(self) -> None:
        """Launch everything on the current stream."""
        for part, graph in zip(self._parts, self._graphs, strict=True):
            if graph is not None:
                self._api.replay(graph)
                continue
            with self._below_autograd():
                for step in part.steps:
                    self._call(step.task)

    def timed(self) -> list[tuple[int, Event, Event]]:
        """Run once without capturing, with an event before and after every task."""
        found: list[tuple[int, Event, Event]] = []
        with self._below_autograd(), self._after_caller():
            for part in self._parts:
                self._issue(part, timed=found)
        return found

    def _captured(self, part: Part) -> Graph:
        graph = self._api.graph()
        kept: list[torch.Tensor] = []
        try:
            with self._api.capture(graph, self._streams[0]):
                self._issue(part, kept)
        except NimbleError:
            raise
        except Exception as error:
            if broken_rule(error) is None:
                raise
            # Noticed when the capture ended: something that a task left behind.
            raise self._refused(self._culprit(part), error) from error
        return graph

    def _culprit(self, part: Part) -> int:
        """The first task that cannot even be captured by itself; the last one if all can."""
        for step in part.steps:
            try:
                with self._api.capture(self._api.graph(), self._streams[0]):
                    self._call(step.task)
            except Exception:
                return step.task
        return part.steps[-1].task

    def _issue(
        self,
        part: Part,
        kept: list[torch.Tensor] | None = None,
        timed: list[tuple[int, Event, Event]] | None = None,
    ) -> None:
        """Launch the tasks of a part on their streams. The first stream begins and ends it; others
        wait for it to begin, and it waits for them. Temporary tensors are added to `kept`."""
        api, origin = self._api, self._streams[0]
        lanes: dict[int, int] = {}
        """The last task so far of every stream."""
        events: dict[int, Event] = {}
        first = {step.lane for step in part.steps if step.lane and part.captured}
        start = self._recorded(origin) if first else None
        for step in part.steps:
            stream = self._streams[step.lane] if part.captured else origin
            if step.lane in first and step.lane not in lanes and not step.waits:
                api.wait(stream, start)
            for on in step.waits:
                if part.captured:
                    api.wait(stream, events[on])
            lanes[step.lane] = step.task
            with api.on(stream):
                begun = self._recorded(stream, True) if timed is not None else None
                made = self._call(step.task)
                if kept is not None and made:
                    kept += made
                    nbytes = sum(t.numel() * t.element_size() for t in made)
                    self.temporary[self._graph.tasks[step.task].name] = nbytes
                if timed is not None:
                    timed.append((step.task, begun, self._recorded(stream, True)))
            if step.awaited and part.captured:
                events[step.task] = self._recorded(stream)
        for lane, last in lanes.items():
            if lane and last not in events and part.captured:
                api.wait(origin, self._recorded(self._streams[lane]))

    def _recorded(self, stream: Stream, timed: bool = False) -> Event:
        event = self._api.event(timed=timed)
        self._api.record(event, stream)
        return event

    def _call(self, number: int) -> tuple[torch.Tensor, ...]:
        task = self._graph.tasks[number]
        try:
            with self._api.task(task.name):
                return self.calls[number].run()
        except Exception as error:
            if broken_rule(error) is not None:
                raise self._refused(number, error) from error
            where = task.origin or "the model"
            error.add_note(f"in task {task.name!r} ({task.op}) from {where}")
            raise

    def _refused(self, number: int, error: Exception) -> Exception:
        task = self._graph.tasks[number]
        rule = broken_rule(error)
        assert rule is not None
        if rule.splits:
            return UncapturedError(task.name, f"{task.op}: {rule.broken}")
        return refusal(task.name, task.op, task.origin, rule)

    @contextlib.contextmanager
    def _after_caller(self) -> Iterator[None]:
        """What is issued inside comes after the caller's work so far, and before its next."""
        current, origin = self._api.current(), self._streams[0]
        self._api.wait(origin, self._recorded(current))
        try:
            yield
        finally:
            self._api.wait(current, self._recorded(origin))

    @contextlib.contextmanager
    def _below_autograd(self) -> Iterator[None]:
        """No gradients and no casts: the graph says all that is to be done."""
        tuned = self._api.tuned() if self._tuned else contextlib.nullcontext()
        with torch.no_grad(), torch._C._DisableAutocast(), tuned:
            yield
