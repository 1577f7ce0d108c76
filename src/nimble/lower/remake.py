"""What a pointwise task can make again from images that are there anyway is not kept for it.

A training step needs on its way back what an activation was made from. Handed over by the way
forward, that is written, kept and read; made again, it costs a few instructions.
"""

from __future__ import annotations

from collections.abc import Iterable

from nimble.graph import Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.lower.program import MOST_INPUTS, Program, fits
from nimble.rewrite.operators import pure_tasks

_POINTWISE = "nimble.pointwise"
_SMALL = 8
"""What is this many times smaller than an image may be kept for the sake of it."""

_NEAR = 4
"""Tasks: for the sake of so few, something may be kept for longer."""


def remake(graph: Graph, supported: Supported) -> Graph:
    """Let pointwise tasks compute themselves what others would hand them, wherever no more has to
    be read for that, and nothing large to be kept for longer."""
    return _Remaking(graph, supported).done()


class _Remaking:
    def __init__(self, graph: Graph, supported: Supported) -> None:
        self._graph = graph
        self._supported = supported
        self._tasks = list(graph.tasks)
        self._shown = {graph.homes[v] for v in graph.outputs}
        self._uses: dict[int, set[int]] = {}
        """Contents → the tasks that read them."""
        for t, task in enumerate(graph.tasks):
            self._note(t, task)
        pure = pure_tasks(graph)
        self._chains = sorted(t for t in pure if graph.tasks[t].op == _POINTWISE)
        self._maker = {v: t for t in self._chains for v in graph.tasks[t].writes}

    def done(self) -> Graph:
        changed = False
        for t in self._chains:
            for maker in dict.fromkeys(self._maker.get(v, t) for v in self._tasks[t].reads):
                changed |= maker != t and self._make_in(t, maker)
        if not changed:
            return self._graph
        edit = Edit(self._graph)
        chains = set(self._chains)
        lean = (self._lean(task) if t in chains else task for t, task in enumerate(self._tasks))
        edit.tasks = [task for task in lean if task is not None]
        return edit.done()

    def _note(self, t: int, task: Task) -> None:
        for v in task.reads:
            self._uses.setdefault(self._graph.content(v).id, set()).add(t)

    def _make_in(self, t: int, maker: int) -> bool:
        """Let a task compute itself what it reads of another."""
        task, other = self._tasks[t], self._tasks[maker]
        taken = [v for v in task.reads if self._maker.get(v) == maker]
        shape = self._graph[task.writes[0]].shape
        if any(self._graph[v].shape != shape for v in taken):
            return False
        whole = Program.of(other)
        value = dict(enumerate(_inputs(other)))
        value |= {
            r: v
            for r, v in zip(whole.outputs, other.writes, strict=True)
            if v not in taken and self._is_needed(v, t)
        }
        made, used = whole.only([other.writes.index(v) for v in taken], value.keys())
        sources = [value[r] for r in used]
        if not self._is_gain(t, taken, [v for v in sources if v not in task.reads]):
            return False
        joined = _joined(task, taken, made, sources)
        if joined is None or not self._supported(self._graph, joined):
            return False
        self._tasks[t] = joined
        for v in taken:
            self._uses[v].discard(t)
        self._note(t, joined)
        return True

    def _is_gain(self, t: int, taken: list[int], more: list[int]) -> bool:
        """Whether less is read, or as much and less is written and kept."""
        graph = self._graph
        numel = graph[self._tasks[t].writes[0]].numel
        images = [v for v in more if graph[v].numel * _SMALL > numel]
        if not all(self._lasts(v) for v in more) or not all(self._is_needed(v, t) for v in images):
            return False
        gained = sum(graph[v].span for v in taken) - sum(graph[v].span for v in images)
        if gained:
            return gained > 0
        return all(self._uses[v] == {t} and v not in self._shown for v in taken)

    def _lasts(self, v: int) -> bool:
        """Whether it is not written over by a later version."""
        content = self._graph.content(v)
        kept = content.role in (Role.INTERMEDIATE, Role.CONSTANT)
        return kept and content.is_root and self._graph.final(content.id) == content.id

    def _is_needed(self, v: int, t: int) -> bool:
        """Whether it has to be kept beyond a task in any case, or almost up to it."""
        content = self._graph.content(v).id
        return content in self._shown or max(self._uses.get(content, ()), default=-t) > t - _NEAR

    def _lean(self, task: Task) -> Task | None:
        """The chain without what nobody reads any more."""
        read = [v for v in task.writes if self._uses.get(v) or v in self._shown]
        if len(read) == len(task.writes):
            return task
        if not read:
            return None
        program, used = Program.of(task).only([task.writes.index(v) for v in read])
        return _chain(task, program, [_inputs(task)[i] for i in used], read)


def _joined(task: Task, taken: list[int], made: Program, sources: list[int]) -> Task | None:
    """The task with a program before its own, of which it has so far read the results."""
    program = Program.of(task)
    inputs = list(dict.fromkeys((*(v for v in _inputs(task) if v not in taken), *sources)))
    code: list[tuple[str, tuple[int | float, ...]]] = []
    register = {v: place for place, v in enumerate(inputs)}

    def add(part: Program, reads: Iterable[int]) -> list[int]:
        """Where each register of a part is in the whole."""
        where = [register[v] for v in reads]
        for name, operands in part.instructions:
            code.append((name, tuple(o if isinstance(o, float) else where[o] for o in operands)))
            where.append(len(inputs) + len(code) - 1)
        return where

    where = add(made, sources)
    register |= {v: where[place] for v, place in zip(taken, made.outputs, strict=True)}
    where = add(program, _inputs(task))
    if len(inputs) > MOST_INPUTS or not fits(code, len(inputs), len(task.writes)):
        return None
    whole = Program(len(inputs), tuple(code), tuple(where[place] for place in program.outputs))
    return _chain(task, whole, inputs, task.writes)


def _inputs(task: Task) -> list[int]:
    return [arg.id for arg in task.args if isinstance(arg, Ref)]


def _chain(task: Task, program: Program, inputs: Iterable[int], results: Iterable[int]) -> Task:
    arguments = tuple(Ref(v) for v in inputs)
    code = (("program", program.to_arg()),)
    return call(task.name, _POINTWISE, arguments, tuple(results), code, task.origin)
