"""What each task asks of a GPU, whichever it is: arithmetic, bytes and tiles of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from nimble.errors import InputError
from nimble.graph import DType, Graph, Ref, Task, Value

TILE = 32
"""Rows and columns of what one thread block of a matrix product computes."""
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
    flops: float = 0.0
    depth: int = 0
    """Of the sums in a matrix product."""
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
    flops: NDArray[np.float64]
    depth: NDArray[np.float64]
    peak: NDArray[np.int64]
    square: NDArray[np.bool_]
    operands: NDArray[np.float64]
    """For every task: tensors that it takes and gives."""

    @staticmethod
    def of(graph: Graph) -> Work:
        found = [
            (t, kernel) for t, task in enumerate(graph.tasks) for kernel in kernels(graph, task)
        ]
        each = [kernel for _, kernel in found]
        return Work(
            len(graph.tasks),
            np.array([t for t, _ in found], np.int64),
            np.array([k.kind for k in each], np.int64),
            np.array([k.bytes for k in each], np.float64),
            np.array([k.flops for k in each], np.float64),
            np.array([k.depth for k in each], np.float64),
            np.array([k.peak for k in each], np.int64),
            np.array([k.square for k in each], np.bool_),
            np.array([_operands(graph, task) for task in graph.tasks], np.float64),
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


def _move(graph: Graph, task: Task) -> Iterator[Kernel]:
    yield Kernel(Kind.MOVE, _bytes(graph, task))


def _nothing(graph: Graph, task: Task) -> Iterator[Kernel]:
    yield from ()


def _lookup(graph: Graph, task: Task) -> Iterator[Kernel]:
    """Of a table only what is looked up is read."""
    table, *others = task.reads
    written = sum(size(graph[v]) for v in task.writes)
    read = sum(size(graph[v]) for v in others) + min(size(graph[table]), written)
    yield Kernel(Kind.MOVE, read + written)


def _read_twice(graph: Graph, task: Task) -> Iterator[Kernel]:
    """Once for statistics, once for results."""
    widest = max(size(graph[v]) for v in task.reads)
    again = sum(size(graph[v]) for v in task.reads if size(graph[v]) == widest)
    yield Kernel(Kind.MOVE, _bytes(graph, task) + again)


def _value(graph: Graph, task: Task, place: int) -> Value:
    arg = task.args[place]
    assert isinstance(arg, Ref)
    return graph[arg.id]


def _peak(dtype: DType, other: Peak) -> Peak:
    return Peak.HALF if dtype in (DType.FLOAT16, DType.BFLOAT16) else other


def _convolution_kernel(graph: Graph, x: Value, weight: Value, y: Value, args: tuple[object, ...],
                        moved: int, depth: int | None = None) -> Kernel:  # fmt: skip
    """One pass over the products of `x` and `weight` that are summed to `y`."""
    stride, _, dilation, transposed, _, groups = args
    assert isinstance(groups, int)
    window = prod(weight.shape[2:])
    inner = weight.shape[1] * window
    # A transposed convolution takes every element of x to a window of y.
    flops = 2.0 * (x.numel * inner if transposed else y.numel * inner)
    per_group = weight.shape[0] // groups
    if groups > 1 and min(per_group, weight.shape[1]) < 8:
        return Kernel(Kind.GROUPED, moved, flops, peak=_peak(x.dtype, Peak.PLAIN))
    once = all(s == 1 for t in (stride, dilation) if isinstance(t, tuple) for s in t)
    square = weight.shape[2:] == (3, 3) and once and not transposed and groups == 1
    peak = _peak(x.dtype, Peak.CONVOLUTION)
    return Kernel(Kind.MATRIX, moved, flops, depth or inner, peak, square)


def _convolution(graph: Graph, task: Task) -> Iterator[Kernel]:
    x, weight, y = _value(graph, task, 0), _value(graph, task, 1), graph[task.writes[0]]
    moved = size(x) + size(weight) + size(y)
    yield _convolution_kernel(graph, x, weight, y, task.args[3:9], moved)
    if task.args[2] is not None:  # The bias is added by a kernel of its own.
        yield Kernel(Kind.MOVE, 2 * size(y))


def _convolution_backward(graph: Graph, task: Task) -> Iterator[Kernel]:
    grad, x, weight = (_value(graph, task, place) for place in range(3))
    moved = size(grad) + size(x) + size(weight)
    wanted = task.args[10]
    assert isinstance(wanted, tuple)
    if wanted[0]:
        yield _convolution_kernel(graph, x, weight, grad, task.args[4:10], moved)
    if wanted[1]:
        depth = grad.numel // max(1, grad.shape[1])
        yield _convolution_kernel(graph, x, weight, grad, task.args[4:10], moved, depth)
    if wanted[2]:
        yield Kernel(Kind.MOVE, size(grad))


def _matrix_product(graph: Graph, task: Task) -> Iterator[Kernel]:
    """mm, bmm, addmm, baddbmm: the last two factors of the arguments."""
    places = [place for place, arg in enumerate(task.args) if isinstance(arg, Ref)]
    left = _value(graph, task, places[-2])
    y = graph[task.writes[0]]
    depth = left.shape[-1]
    peak = _peak(y.dtype, Peak.PLAIN)
    yield Kernel(Kind.MATRIX, _bytes(graph, task), 2.0 * y.numel * depth, depth, peak)


def _attention(graph: Graph, task: Task) -> Iterator[Kernel]:
    query, key = _value(graph, task, 0), _value(graph, task, 1)
    flops = 4.0 * query.numel * key.shape[-2]
    peak = _peak(query.dtype, Peak.PLAIN)
    yield Kernel(Kind.MATRIX, _bytes(graph, task), flops, query.shape[-1], peak)


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
