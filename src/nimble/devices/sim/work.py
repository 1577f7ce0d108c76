"""What each task asks of a GPU, whichever it is: arithmetic, bytes and tiles of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from nimble.errors import InputError
from nimble.graph import Arg, DType, Graph, Ref, Task, Value

TILE = 32
"""Rows and columns of what one thread block of a small matrix product computes."""
THREADS = 2048
"""That a multiprocessor holds at once."""
DEPTH = 512
"""Longer sums are split between thread blocks."""


class Kind(IntEnum):
    MOVE = 0
    """Bound by bytes: pointwise operators, norms, pools, copies."""
    MATRIX = 1
    GROUPED = 2
    """A convolution by channel."""


class Peak(IntEnum):
    """Which of a GPU's peaks holds."""

    PLAIN = 0
    CONVOLUTION = 1
    HALF = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    kind: Kind
    bytes: int
    blocks: int
    """Of a matrix product, tiles; else multiprocessors' worth of threads."""
    flops: float = 0.0
    depth: int = 0
    """Of the sums in a tile of a matrix product."""
    peak: Peak = Peak.PLAIN
    square: bool = False
    """A 3 x 3 convolution with stride 1, for which there is Winograd's algorithm."""


@dataclass(frozen=True, slots=True)
class Work:
    """The kernels of a graph in columns; row i belongs to task `task[i]`."""

    tasks: int
    task: NDArray[np.int64]
    kind: NDArray[np.int64]
    bytes: NDArray[np.float64]
    blocks: NDArray[np.float64]
    flops: NDArray[np.float64]
    depth: NDArray[np.float64]
    peak: NDArray[np.int64]
    square: NDArray[np.bool_]
    operands: NDArray[np.float64]
    """For every task: tensors that it takes and gives."""

    @staticmethod
    def of(graph: Graph) -> Work:
        operands = [_operands(graph, task) for task in graph.tasks]
        return Work.of_kernels([kernels(graph, task) for task in graph.tasks], operands)

    @staticmethod
    def of_kernels(tasks: Sequence[Sequence[Kernel]], operands: Sequence[int] = ()) -> Work:
        """From the kernels of each task."""
        each = [kernel for mine in tasks for kernel in mine]
        return Work(
            len(tasks),
            np.repeat(np.arange(len(tasks)), [len(mine) for mine in tasks]),
            np.array([k.kind for k in each], np.int64),
            np.array([k.bytes for k in each], np.float64),
            np.array([k.blocks for k in each], np.float64),
            np.array([k.flops for k in each], np.float64),
            np.array([k.depth for k in each], np.float64),
            np.array([k.peak for k in each], np.int64),
            np.array([k.square for k in each], np.bool_),
            np.array(operands or [0] * len(tasks), np.float64),
        )


def kernels(graph: Graph, task: Task) -> list[Kernel]:
    """What a task launches on a GPU: none, one, or several one after the other."""
    if task.op.startswith("nimble."):
        raise InputError(
            f"task {task.name!r} is {task.op}, which was lowered for the CPU; predict from the "
            "rewritten graph (plan.source)"
        )
    name = task.op.removeprefix("aten.").partition(".")[0]
    return list(_SPECIAL.get(name, _move)(graph, task))


def _operands(graph: Graph, task: Task) -> int:
    return sum(graph[v].dtype is not DType.TOKEN for v in (*task.reads, *task.writes))


def size(value: Value) -> int:
    return value.numel * value.dtype.itemsize


def _bytes(graph: Graph, task: Task) -> int:
    return sum(size(graph[v]) for v in (*task.reads, *task.writes))


def _threads(graph: Graph, task: Task) -> int:
    return _blocks(max((graph[v].numel for v in task.writes), default=0))


def _move(graph: Graph, task: Task) -> Iterator[Kernel]:
    yield Kernel(Kind.MOVE, _bytes(graph, task), _threads(graph, task))


def _nothing(graph: Graph, task: Task) -> Iterator[Kernel]:
    yield from ()


def _lookup(graph: Graph, task: Task) -> Iterator[Kernel]:
    """Of a table only what is looked up is read."""
    table, *others = task.reads
    written = sum(size(graph[v]) for v in task.writes)
    read = sum(size(graph[v]) for v in others) + min(size(graph[table]), written)
    yield Kernel(Kind.MOVE, read + written, _threads(graph, task))


def _read_twice(graph: Graph, task: Task) -> Iterator[Kernel]:
    """Once for statistics, once for results."""
    widest = max(size(graph[v]) for v in task.reads)
    again = sum(size(graph[v]) for v in task.reads if size(graph[v]) == widest)
    yield Kernel(Kind.MOVE, _bytes(graph, task) + again, _threads(graph, task))


def _value(graph: Graph, task: Task, place: int) -> Value:
    arg = task.args[place]
    assert isinstance(arg, Ref)
    return graph[arg.id]


def _peak(dtype: DType, other: Peak) -> Peak:
    return Peak.HALF if dtype in (DType.FLOAT16, DType.BFLOAT16) else other


@dataclass(frozen=True, slots=True)
class _Filter:
    """A convolution as its operator's arguments give it."""

    weight: Value
    groups: int
    once: bool
    """With stride and dilation 1."""
    transposed: bool

    @staticmethod
    def of(weight: Value, args: tuple[Arg, ...]) -> _Filter:
        stride, _, dilation, transposed, _, groups = args
        assert isinstance(groups, int)
        steps = [s for t in (stride, dilation) if isinstance(t, tuple) for s in t]
        return _Filter(weight, groups, all(s == 1 for s in steps), bool(transposed))

    @property
    def by_channel(self) -> bool:
        return self.groups > 1 and min(self.weight.shape[0] // self.groups, self.inner) < 8

    @property
    def inner(self) -> int:
        return self.weight.shape[1]

    @property
    def window(self) -> int:
        return prod(self.weight.shape[2:])

    def kernel(self, made: Value, columns: int, depth: int, flops: float, moved: int) -> Kernel:
        """One that makes a value with so many columns, each element a sum of `depth` products."""
        if self.by_channel:
            blocks = _blocks(made.numel)
            return Kernel(Kind.GROUPED, moved, blocks, flops, peak=_peak(made.dtype, Peak.PLAIN))
        square = self.weight.shape[2:] == (3, 3) and self.once and self.groups == 1
        blocks = self.groups * _tiles(made.numel // columns, columns // self.groups, depth)
        peak = _peak(made.dtype, Peak.CONVOLUTION)
        return Kernel(Kind.MATRIX, moved, blocks, flops, min(depth, DEPTH), peak, square)


def _blocks(elements: int) -> int:
    """Multiprocessors that kernels with a thread for each element keep busy."""
    return -(-elements // THREADS)


def _tiles(rows: int, columns: int, depth: int) -> int:
    return -(-rows // TILE) * -(-columns // TILE) * -(-depth // DEPTH)


def _convolution(graph: Graph, task: Task) -> Iterator[Kernel]:
    x, weight, y = _value(graph, task, 0), _value(graph, task, 1), graph[task.writes[0]]
    found = _Filter.of(weight, task.args[3:9])
    # A transposed convolution takes every element of x to a window of y.
    taken = x if found.transposed else y
    depth = found.inner * found.window
    moved = size(x) + size(weight) + size(y)
    yield found.kernel(y, y.shape[1], depth, 2.0 * taken.numel * depth, moved)
    if task.args[2] is not None:  # The bias is added by a kernel of its own.
        yield Kernel(Kind.MOVE, 2 * size(y), _blocks(y.numel))


def _convolution_backward(graph: Graph, task: Task) -> Iterator[Kernel]:
    grad, x, weight = (_value(graph, task, place) for place in range(3))
    found = _Filter.of(weight, task.args[4:10])
    taken = x if found.transposed else grad
    flops = 2.0 * taken.numel * found.inner * found.window
    moved = size(grad) + size(x) + size(weight)
    wanted = task.args[10]
    assert isinstance(wanted, tuple)
    if wanted[0]:
        depth = weight.shape[0] // found.groups * found.window
        yield found.kernel(x, x.shape[1], depth, flops, moved)
    if wanted[1]:
        depth = taken.numel // taken.shape[1]
        yield found.kernel(weight, found.inner * found.window, depth, flops, moved)
    if wanted[2]:
        yield Kernel(Kind.MOVE, size(grad), _blocks(grad.numel))


def _matrix_product(graph: Graph, task: Task) -> Iterator[Kernel]:
    """mm, bmm, addmm, baddbmm: the last two factors of the arguments."""
    places = [place for place, arg in enumerate(task.args) if isinstance(arg, Ref)]
    left = _value(graph, task, places[-2])
    y = graph[task.writes[0]]
    depth, (rows, columns) = left.shape[-1], y.shape[-2:]
    blocks = y.numel // max(1, rows * columns) * _tiles(rows, columns, depth)
    peak = _peak(y.dtype, Peak.PLAIN)
    flops = 2.0 * y.numel * depth
    yield Kernel(Kind.MATRIX, _bytes(graph, task), blocks, flops, min(depth, DEPTH), peak)


def _attention(graph: Graph, task: Task) -> Iterator[Kernel]:
    query, key = _value(graph, task, 0), _value(graph, task, 1)
    flops = 4.0 * query.numel * key.shape[-2]
    heads = query.numel // max(1, query.shape[-2] * query.shape[-1])
    blocks = heads * -(-query.shape[-2] // TILE)
    peak = _peak(query.dtype, Peak.PLAIN)
    yield Kernel(Kind.MATRIX, _bytes(graph, task), blocks, flops, query.shape[-1], peak)


_SPECIAL: dict[str, Callable[[Graph, Task], Iterator[Kernel]]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mm": _matrix_product,
    "bmm": _matrix_product,
    "addmm": _matrix_product,
    "baddbmm": _matrix_product,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "scaled_dot_product_attention": _attention,
    "empty": _nothing,
    "empty_like": _nothing,
    "empty_strided": _nothing,
    "embedding": _lookup,
    "index_select": _lookup,
    "index": _lookup,
    "gather": _lookup,
    "_native_batch_norm_legit_functional": _read_twice,
    "native_batch_norm": _read_twice,
    "native_batch_norm_backward": _read_twice,
}
