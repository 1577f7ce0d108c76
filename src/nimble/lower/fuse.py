"""Chains of pointwise operators become one task, or the tail of the task that feeds them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nimble.graph import (
    DType,
    Edit,
    Graph,
    Ref,
    Role,
    Task,
    contiguous_strides,
    dependencies,
    in_order,
)
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.lower.program import MOST_INPUTS, Instruction, Operand, Program, fits, instructions
from nimble.rewrite.operators import pure_tasks

HEADS = frozenset(
    f"nimble.{name}"
    for name in (
        "convolution", "depthwise", "group_norm", "layer_norm", "linear", "matmul", "mixing",
        "rms_norm",
    )
)  # fmt: skip
"""Tasks that can end with a chain of pointwise operators."""
_OF_ROWS = {"nimble.linear": 1, "nimble.matmul": 2}
"""Heads whose chain may see their result in other dimensions, but for so many of the last: what
begins a row, and what a matrix, is the head's. All others end in the shape that they have."""


@dataclass
class _Group:
    """Tasks that become one: a head, if any, and pointwise ones, in the order of the graph."""

    head: int | None
    members: list[int] = field(default_factory=list)
    tail: tuple[Instruction, ...] = ()
    """After a head: the members as a chain; operand 0 is the running value."""


def fuse(graph: Graph, supported: Supported) -> Graph:
    """Fuse pointwise tasks with each other and with the heads before them, wherever nobody else
    needs what lies between, or it can be handed out too."""
    return _Fusion(graph, supported).done()


class _Fusion:
    def __init__(self, graph: Graph, supported: Supported) -> None:
        self._graph = graph
        self._supported = supported
        self._shown = {graph.homes[v] for v in graph.outputs}
        self._before = dependencies(graph)
        self._ancestors = _ancestors(self._before)
        self._depth: list[int] = []
        for needed in self._before:
            self._depth.append(1 + max((self._depth[b] for b in needed), default=0))
        self._uses = _uses(graph)
        pure = pure_tasks(graph)
        self._code = {
            t: code
            for t, task in enumerate(graph.tasks)
            if t in pure and (code := instructions(graph, task)) is not None
        }
        self._groups: dict[int, _Group] = {}
        for t, task in enumerate(graph.tasks):
            if t in self._code:
                self._add_pointwise(t)
            elif t in pure and task.op in HEADS:
                self._groups[t] = _Group(t)

    def _add_pointwise(self, t: int) -> None:
        feeding = self._feeding(t)
        # The head that is ready last: the other's result is there by then.
        for v in sorted(feeding, key=lambda v: -self._depth[self._writer(v)]):
            group = self._groups[self._writer(v)]
            if group.head is not None and self._extends(group, v, t):
                self._groups[t] = group
                return
        mine = self._groups[t] = _Group(None, [t])
        for v in feeding:
            other = self._groups[self._writer(v)]
            if other.head is not None or other is mine or self._graph[v].base is not None:
                continue  # Seen in another shape, its operands would be broadcast otherwise.
            if self._may_join(other, mine, t):
                mine.members = sorted((*mine.members, *other.members))
                for member in other.members:
                    self._groups[member] = mine

    def _feeding(self, t: int) -> list[int]:
        """Values that a group writes and the task reads as they are, in its own shape."""
        graph = self._graph
        shape = graph[graph.tasks[t].writes[0]].shape
        return [
            v
            for v in graph.tasks[t].reads
            if _shows_all(graph, v, shape) and graph.writer.get(graph.content(v).id) in self._groups
        ]

    def _writer(self, v: int) -> int:
        return self._graph.writer[self._graph.content(v).id]

    def _extends(self, group: _Group, v: int, t: int) -> bool:
        """Let the task be the end of a head's chain, if the kernel can do that."""
        assert group.head is not None
        last = group.members[-1] if group.members else group.head
        graph = self._graph
        root = graph.content(v)
        if self._uses.get(root.id) != {t} or root.role is not Role.INTERMEDIATE:
            return False
        if root.id != graph.content(graph.tasks[last].writes[0]).id or root.id in self._shown:
            return False  # Of a head's other results, statistics say, no chain begins.
        made = graph[graph.tasks[t].writes[0]]
        if made.dtype is not DType.FLOAT32 or not self._in_place_of(group.head, made.shape):
            return False
        chained = _chained(self._code[t], v)
        if chained is None or self._sees_part_of(graph.tasks[t], {root.id}, but=v):
            return False
        longer = _Group(group.head, [*group.members, t], (*group.tail, *chained))
        if not fits(longer.tail, 1 + len(_extra(longer)), 1):
            return False
        if not self._supported(graph, self._headed(longer)):
            return False
        group.tail, group.members = longer.tail, longer.members
        return True

    def _in_place_of(self, head: int, shape: tuple[int, ...]) -> bool:
        """Whether a head could write its result in this shape."""
        task = self._graph.tasks[head]
        own, kept = self._graph[task.writes[0]].shape, _OF_ROWS.get(task.op)
        return shape == own if kept is None else shape[-kept:] == own[-kept:]

    def _sees_part_of(self, task: Task, made: Collection[int], but: int | None = None) -> bool:
        """Whether the task reads other elements of these values than those in its own place, as
        `y + y[0]` does: then all of them must be there before."""
        views = (v for v in task.reads if v != but and self._graph[v].base is not None)
        return any(self._graph[v].base in made for v in views)

    def _may_join(self, other: _Group, mine: _Group, t: int) -> bool:
        tasks = {*other.members, *mine.members}
        read = {v for m in tasks for v in self._graph.tasks[m].reads}
        made = {self._graph.tasks[m].writes[0] for m in tasks}
        if any(self._sees_part_of(self._graph.tasks[m], made) for m in tasks):
            return False
        inputs = len(read - made)
        code = [step for m in tasks for step in self._code[m]]
        if inputs > MOST_INPUTS or not fits(code, inputs, len(self._handed(tasks))):
            return False
        # Who else reads what `other` computes must not lead back here.
        return not any(
            reader not in tasks and self._ancestors[t] >> reader & 1
            for m in other.members
            for w in self._graph.tasks[m].writes
            for reader in self._uses.get(w, ())
        )

    # Writing the new graph

    def done(self) -> Graph:
        parts = self._parts()
        while len(ordered := _in_order(self._before, parts)) < len(parts):
            self._break_up(_in_circles(self._before, parts, ordered))
            parts = self._parts()
        edit = Edit(self._graph)
        edit.tasks = [self._made(parts[p]) for p in ordered]
        return edit.done()

    def _parts(self) -> list[list[int]]:
        """The tasks that become one each, a head first, in the order of the graph."""
        parts: list[list[int]] = []
        seen: set[int] = set()
        for t in range(len(self._graph.tasks)):
            group = self._groups.get(t)
            if group is None:
                parts.append([t])
            elif id(group) not in seen:
                seen.add(id(group))
                parts.append([*([group.head] if group.head is not None else []), *group.members])
        return parts

    def _break_up(self, parts: list[list[int]]) -> None:
        """Groups that wait for each other, each harmless by itself: the smallest is given up."""
        first, *others = min((part for part in parts if len(part) > 1), key=len)
        group = self._groups[first]
        if group.head is None:
            others.insert(0, first)
        else:
            group.members, group.tail = [], ()
        for t in others:
            self._groups[t] = _Group(None, [t])

    def _made(self, part: list[int]) -> Task:
        group = self._groups.get(part[0])
        if group is None or (group.head is not None and not group.members):
            return self._graph.tasks[part[0]]
        return self._alone(group) if group.head is None else self._headed(group)

    def _alone(self, group: _Group) -> Task:
        graph, handed = self._graph, self._handed(group.members)
        register: dict[int, int] = {}
        inside = {graph.tasks[m].writes[0] for m in group.members}
        read = dict.fromkeys(v for m in group.members for v in graph.tasks[m].reads)
        inputs = [v for v in read if graph.content(v).id not in inside]
        for v in inputs:
            register[v] = len(register)
        code: list[tuple[str, tuple[int | float, ...]]] = []
        for m in group.members:
            first = len(inputs) + len(code)
            for name, operands in self._code[m]:
                code.append((name, tuple(self._numbered(o, register, first) for o in operands)))
            register[graph.tasks[m].writes[0]] = len(inputs) + len(code) - 1
        program = Program(len(inputs), tuple(code), tuple(register[v] for v in handed))
        last = graph.tasks[group.members[-1]]
        return call(
            last.name,
            "nimble.pointwise",
            tuple(Ref(v) for v in inputs),
            tuple(handed),
            (("program", program.to_arg()),),
            last.origin,
        )

    def _handed(self, members: Collection[int]) -> list[int]:
        """What others need of what these compute."""
        inside = set(members)
        written = (self._graph.tasks[m].writes[0] for m in members)
        return [v for v in written if v in self._shown or not self._uses.get(v, set()) <= inside]

    def _numbered(self, operand: Operand, register: dict[int, int], first: int) -> int | float:
        if isinstance(operand, Ref):
            v = operand.id
            return register[v] if v in register else register[self._graph.content(v).id]
        return operand if isinstance(operand, float) else first + operand

    def _headed(self, group: _Group) -> Task:
        """The head with its chain: operands of the chain come after its own arguments."""
        assert group.head is not None
        head = self._graph.tasks[group.head]
        last = self._graph.tasks[group.members[-1]]
        extra = _extra(group)
        tail = tuple(
            (name, tuple(1 + extra.index(o.id) if isinstance(o, Ref) else o for o in operands))
            for name, operands in group.tail
        )
        kwargs = (*head.kwargs, ("operands", tuple(Ref(v) for v in extra)), ("tail", tail))
        results = (*last.results, *head.results[1:])
        return call(head.name, head.op, head.args, results, kwargs, head.origin)


def _extra(group: _Group) -> list[int]:
    """What the chain after a head reads beside the running value."""
    return list(dict.fromkeys(o.id for _, os in group.tail for o in os if isinstance(o, Ref)))


def _chained(code: tuple[Instruction, ...], v: int) -> tuple[Instruction, ...] | None:
    """The instructions with `v`, which must be used just once, as the running value: operand 0."""
    if len(code) != 1:
        return None
    name, operands = code[0]
    places = [i for i, o in enumerate(operands) if o == Ref(v)]
    if len(places) != 1:
        return None
    operands = tuple(0 if i == places[0] else o for i, o in enumerate(operands))
    return ((name, operands),)


def _shows_all(graph: Graph, v: int, shape: tuple[int, ...]) -> bool:
    """Whether the value is a whole root in this shape, perhaps seen in another contiguous one."""
    value, root = graph[v], graph.content(v)
    if value.shape != shape or not root.is_root:
        return False
    if value.base is None:
        return True
    return value.numel == root.numel and all(
        x.strides == contiguous_strides(x.shape) for x in (value, root)
    )


def _uses(graph: Graph) -> dict[int, set[int]]:
    """Root → the tasks that read it, through any view."""
    found: dict[int, set[int]] = {}
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            found.setdefault(graph.content(v).id, set()).add(t)
    return found


def _ancestors(before: list[set[int]]) -> list[int]:
    """For every task, the set of those before it, as the bits of a number."""
    found: list[int] = []
    for needed in before:
        bits = 0
        for t in needed:
            bits |= 1 << t | found[t]
        found.append(bits)
    return found


def _in_order(before: list[set[int]], parts: list[list[int]]) -> list[int]:
    """The parts, each a list of tasks, in a topological order as near to theirs as may be; without
    those that wait for themselves."""
    return in_order(_waiting(before, parts))


def _waiting(before: list[set[int]], parts: list[list[int]]) -> list[set[int]]:
    """For every part, those that it waits for."""
    part = {t: p for p, tasks in enumerate(parts) for t in tasks}
    return [{part[b] for t in tasks for b in before[t]} - {p} for p, tasks in enumerate(parts)]


def _in_circles(
    before: list[set[int]], parts: list[list[int]], ordered: list[int]
) -> list[list[int]]:
    """Of the parts that could not be ordered, those for which others of them wait."""
    waiting = _waiting(before, parts)
    left = set(range(len(parts))) - set(ordered)
    while True:
        awaited = set().union(*(waiting[p] for p in left)) & left
        if awaited == left:
            return [parts[p] for p in sorted(left)]
        left = awaited
