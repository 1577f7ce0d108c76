"""The intermediate representation: Graph, Task and Value, frozen. Its grammar is docs/ir.md.

A *root* value owns memory. A *view* (`base` set) holds the same contents as its base, through other
strides. A *version* (`overwrites` set) is new contents in memory that another value held before, as
an in-place update of a state leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias


class DType(StrEnum):
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    TOKEN = "token"
    """No bytes: carries only an order, such as that of draws from the random generator."""

    @property
    def itemsize(self) -> int:
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DType.FLOAT32: 4, DType.FLOAT64: 8, DType.FLOAT16: 2, DType.BFLOAT16: 2,
    DType.COMPLEX64: 8, DType.COMPLEX128: 16, DType.INT8: 1, DType.INT16: 2,
    DType.INT32: 4, DType.INT64: 8, DType.UINT8: 1, DType.UINT16: 2,
    DType.UINT32: 4, DType.UINT64: 8, DType.BOOL: 1, DType.TOKEN: 0,
}  # fmt: skip


class Role(StrEnum):
    """Who owns the memory of a value."""

    INPUT = "input"
    """The caller; bound anew at every call."""
    PARAMETER = "parameter"
    """The module; read, never written."""
    CONSTANT = "constant"
    """The engine; computed once, by the graph's prologue or at capture."""
    STATE = "state"
    """The module; read and written, kept from one replay to the next."""
    INTERMEDIATE = "intermediate"
    """The arena."""
    OUTPUT = "output"
    """The caller; allocated anew at every call, because it is handed out."""


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor. `strides` are in elements, `offset` in bytes from the start of `base`."""

    id: int
    name: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: int | None = None
    offset: int = 0
    overwrites: int | None = None

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last, gaps included."""
        if self.numel == 0:
            return 0
        steps = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (steps + 1) * self.dtype.itemsize

    @property
    def is_root(self) -> bool:
        return self.base is None and self.overwrites is None

    @property
    def type(self) -> str:
        """`float32[1,64,56,56]`, with strides added where they are not the contiguous ones."""
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        if self.strides != contiguous_strides(self.shape):
            text += f"({','.join(map(str, self.strides))})"
        return text


ALIGNMENT = 64
"""Bytes; where every value of the arena begins."""


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a value of the graph."""

    id: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """An argument that names something of PyTorch's: `kind` is device, layout or memory_format."""

    kind: str
    name: str


Scalar: TypeAlias = bool | int | float | complex | str | None
Arg: TypeAlias = "Ref | Symbol | DType | Scalar | tuple[Arg, ...]"


def refs(arg: Arg) -> Iterator[int]:
    """The ids of all values inside an argument, in order."""
    if isinstance(arg, Ref):
        yield arg.id
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs(item)


def map_refs(arg: Arg, ids: dict[int, int]) -> Arg:
    """The argument with every value id replaced by `ids[id]` where that is given."""
    if isinstance(arg, Ref):
        return Ref(ids.get(arg.id, arg.id))
    if isinstance(arg, tuple):
        return tuple(map_refs(item, ids) for item in arg)
    return arg


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel call. Its number is its place in `Graph.tasks`, which is a topological order.

    `results` are the op's tensor results in order (a list result flattened), None where it returns
    none. `reads` and `writes` are every value touched, order tokens included.
    """

    name: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    results: tuple[int | None, ...] = ()
    kernel: str = "aten"
    cost: int = 0
    """Nanoseconds, measured or estimated; 0 where unknown."""
    origin: str = ""
    """Where in the user's model it came from: module path, file and line."""


@dataclass(frozen=True)
class Graph:
    """Tasks in a topological order, and the values between them (`values[i].id == i`)."""

    name: str
    values: tuple[Value, ...]
    tasks: tuple[Task, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    prologue: Graph | None = field(default=None, repr=False)
    """Computes constants of this graph from its parameters, anew whenever those change. Its
    outputs are named like the constants they fill."""

    def __getitem__(self, id: int) -> Value:
        return self.values[id]

    def content(self, id: int) -> Value:
        """The value whose contents `id` shows: itself, or what it is a view of."""
        value = self.values[id]
        return value if value.base is None else self.values[value.base]

    def home(self, id: int) -> Value:
        """The root whose memory holds `id`."""
        value = self.content(id)
        while value.overwrites is not None:
            value = self.content(value.overwrites)
        return value

    @cached_property
    def homes(self) -> tuple[int, ...]:
        return tuple(self.home(value.id).id for value in self.values)

    @cached_property
    def writer(self) -> dict[int, int]:
        """Value id → the task that writes it."""
        return {v: t for t, task in enumerate(self.tasks) for v in task.writes}

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        """Value id → the tasks that read it, in order."""
        found: dict[int, list[int]] = {}
        for t, task in enumerate(self.tasks):
            for v in dict.fromkeys(task.reads):
                found.setdefault(v, []).append(t)
        return {v: tuple(tasks) for v, tasks in found.items()}

    def final(self, root: int) -> int:
        """The version that the memory of `root` holds at the end of a replay."""
        return self._finals.get(root, root)

    @cached_property
    def _finals(self) -> dict[int, int]:
        return {self.homes[v.id]: v.id for v in self.values if v.overwrites is not None}

    def roots(self, *roles: Role) -> Iterator[Value]:
        return (v for v in self.values if v.is_root and (not roles or v.role in roles))

    def with_tasks(self, tasks: Iterable[Task]) -> Graph:
        return Graph(self.name, self.values, tuple(tasks), self.inputs, self.outputs, self.prologue)
