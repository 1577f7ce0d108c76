"""Tasks split into tiles: parts of one operator that workers can share.

A tile is a task like any other, on views of the same values: rows of an image or a matrix, output
channels, heads. The scheduler places tiles and whole tasks alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task, Value, refs
from nimble.graph.edit import call
from nimble.lower.kernels import PANEL, Supported

_ROWS = 6
"""Of a matrix that are multiplied at once."""
_TRANSFORM = 32
"""As many channels of a result take as long as the transform of the input."""
Given = dict[str, Any]


def split(
    graph: Graph,
    pieces: int,
    least_ns: int,
    supported: Supported,
    only: Container[int] | None = None,
) -> Graph:
    """The graph with every task, or `only` these, that takes at least `least_ns` in as many tiles
    as `pieces`, where that can be done. What is a tile already stays one."""
    edit = Edit(graph)
    by_channels: set[int] = set()
    for t, task in enumerate(graph.tasks):
        splitting = Tiles(edit, task, pieces, by_channels)
        wanted = "/" not in task.name and (only is None or t in only)
        tiles = splitting.made() if wanted and task.cost >= least_ns else None
        if tiles is None or not all(
            tile.op in _BY_BATCH or supported(edit.values, tile) for tile in tiles
        ):
            edit.tasks.append(task)
            continue
        sizes = [edit.values[tile.writes[0]].numel for tile in tiles]
        edit.tasks += [
            replace(tile, kernel=task.kernel, cost=max(1, task.cost * size // sum(sizes)))
            for tile, size in zip(tiles, sizes, strict=True)
        ]
    return edit.done()


class Tiles:
    """The tiles of one task."""

    def __init__(self, edit: Edit, task: Task, pieces: int, by_channels: set[int]) -> None:
        self._edit = edit
        self._task = task
        self._pieces = pieces
        self._by_channels = by_channels
        """Values that were made in tiles of their channels."""
        self._given: Given = dict(task.kwargs)
        self._writes = task.writes
        named = set(refs((*task.args, *(arg for _, arg in task.kwargs))))
        self._awaited = tuple(v for v in task.reads if v not in named)
        """What it has to come after, and does not use."""
        self._result = task.writes[0]

    def made(self) -> list[Task] | None:
        make = _SPLITS.get(self._task.op)
        return make(self) if make is not None else None

    # Pieces of values

    def value(self, arg: Arg) -> Value:
        assert isinstance(arg, Ref)
        return self._edit.values[arg.id]

    @property
    def result(self) -> Value:
        return self._edit.values[self._result]

    def slice(self, v: int, dim: int, start: int, stop: int) -> int:
        value = self._edit.values[v]
        shape = (*value.shape[:dim], stop - start, *value.shape[dim + 1 :])
        offset = start * value.strides[dim] * value.dtype.itemsize
        name = f"{value.name}[{start}:{stop}]"
        return self._edit.add_view(name, v, shape, value.strides, offset)

    def along(self, arg: Arg, dim: int, whole: Value, start: int, stop: int) -> Arg:
        """The part of an operand that belongs to a slice of the result; all of it if broadcast."""
        if not isinstance(arg, Ref):
            return arg
        value = self._edit.values[arg.id]
        mine = dim - (len(whole.shape) - len(value.shape))
        if mine < 0 or value.shape[mine] != whole.shape[dim]:
            return arg
        return Ref(self.slice(arg.id, mine, start, stop))

    def ranges(self, count: int, step: int = 1) -> Iterator[tuple[int, int]]:
        """`count` in as many even parts as there are pieces, cut at multiples of `step`."""
        steps = -(-count // step)
        bounds = [
            min(count, round(steps * p / self._pieces) * step) for p in range(self._pieces + 1)
        ]
        return ((a, b) for a, b in pairwise(bounds) if a < b)

    def tile(
        self, number: int, args: tuple[Arg, ...], results: tuple[int | None, ...], changed: Given
    ) -> Task:
        task = self._task
        kwargs = tuple((name, changed.get(name, arg)) for name, arg in task.kwargs)
        tile = call(f"{task.name}/{number}", task.op, args, results, kwargs, task.origin)
        return replace(tile, reads=(*tile.reads, *self._awaited)) if self._awaited else tile

    def rooms(self, number: int) -> Iterator[int]:
        """Memory that a tile needs for itself: as the whole task has after its result."""
        for v in self._task.writes[1:]:
            room = self._edit.values[v]
            name = f"{room.name}.{number}"
            yield self._edit.add_root(name, Role.INTERMEDIATE, room.dtype, room.shape)

    def operands(self, dim: int, start: int, stop: int) -> Given:
        """The operands of the tail, cut along a dimension of the result."""
        if "operands" not in self._given:
            return {}
        whole = self.result
        return {
            "operands": tuple(
                self.along(arg, dim, whole, start, stop) for arg in self._given["operands"]
            )
        }

    # Operators

    def convolution(self) -> list[Task] | None:
        x, weight, _ = self._task.args
        moved = self.value(x).span + self.result.span
        if self.result.shape[0] >= self._pieces and self.value(weight).span < moved:
            return self.images()
        by_rows = self.result.shape[2] >= self._pieces
        wide = self._given["groups"] == 1 and self.result.shape[1] >= self._pieces * PANEL
        if wide and (self.value(weight).span > moved or not by_rows):
            return self.channels()
        return self.rows() if by_rows else None

    def winograd(self) -> list[Task] | None:
        """By rows of the transform's own tiles, or by channels: then each tile transforms the whole
        input, but rows may come out uneven."""
        x, weight, _ = self._task.args
        side = self._given["side"]
        down, out = -(-self.result.shape[2] // side), self.result.shape[1]
        share_of_rows = -(-down // self._pieces) / down
        share_of_channels = (_TRANSFORM + out / self._pieces) / (_TRANSFORM + out)
        heavy = self.value(weight).span > 2 * (self.value(x).span + self.result.span)
        wide = out >= self._pieces * PANEL
        if wide and (heavy or share_of_channels < share_of_rows):
            return self.channels()
        return self.rows(side) if down >= self._pieces else None

    def depthwise(self) -> list[Task] | None:
        """The way its input was made, so that a tile needs only one tile of it."""
        x = self._task.args[0]
        assert isinstance(x, Ref)
        if self.result.shape[0] >= self._pieces:
            return self.images()
        by_rows = self.result.shape[2] >= self._pieces
        if x.id in self._by_channels or not by_rows:
            return self.channels_apart() if self.result.shape[1] >= self._pieces * PANEL else None
        return self.rows()

    def images(self) -> list[Task]:
        """By images of the batch."""
        x, *rest = self._task.args
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[0]):
            args = (self.along(x, 0, self.result, start, stop), *rest)
            results = (self.slice(self._result, 0, start, stop), *self.rooms(len(tiles)))
            tiles.append(self.tile(len(tiles), args, results, self.operands(0, start, stop)))
        return tiles

    def pool_gradient(self) -> list[Task] | None:
        """By images of the batch."""
        if self.result.shape[0] < self._pieces:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[0]):
            cut = (self.along(arg, 0, self.result, start, stop) for arg in self._task.args)
            results = (self.slice(self._result, 0, start, stop),)
            tiles.append(self.tile(len(tiles), tuple(cut), results, {}))
        return tiles

    def statistics(self) -> list[Task] | None:
        """By channels."""
        channels = self.result.shape[0]
        if channels < self._pieces * PANEL:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(channels, PANEL):
            args = tuple(
                Ref(self.slice(arg.id, min(1, len(self.value(arg).shape) - 1), start, stop))
                for arg in self._task.args
                if isinstance(arg, Ref)
            )
            results = tuple(self.slice(v, 0, start, stop) for v in self._writes)
            tiles.append(self.tile(len(tiles), args, results, {}))
        return tiles

    def weight_gradient(self) -> list[Task] | None:
        """By channels of the result, or of the input."""
        gradient, x = self._task.args
        assert isinstance(gradient, Ref)
        assert isinstance(x, Ref)
        out, inside = self.result.shape[:2]
        apart = self._task.op == "nimble.depthwise_gradient"
        by_out = apart or out >= 2 * _ROWS
        step = PANEL if apart or not by_out else _ROWS
        if (out if by_out else inside) < self._pieces * step:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(out if by_out else inside, step):
            cut = Ref(self.slice((gradient if by_out else x).id, 1, start, stop))
            other = Ref(self.slice(x.id, 1, start, stop)) if apart else x
            args = (cut, other) if by_out else (gradient, cut)
            results = (self.slice(self._result, 0 if by_out else 1, start, stop),)
            tiles.append(self.tile(len(tiles), args, results, {}))
        return tiles

    def rows(self, step: int = 1, **more: Arg) -> list[Task] | None:
        return self.between(self.ranges(self.result.shape[2], step), **more)

    def between(self, ranges: Iterable[tuple[int, int]], **more: Arg) -> list[Task] | None:
        """By these rows of the result."""
        x, *rest = self._task.args
        source = self.value(x)
        assert isinstance(x, Ref)
        (kernel, _), (stride, _) = self._given["kernel"], self._given["stride"]
        (dilation, _), (top, left) = self._given["dilation"], self._given["padding"]
        tiles: list[Task] = []
        for start, stop in ranges:
            first = start * stride - top
            last = (stop - 1) * stride - top + (kernel - 1) * dilation + 1
            low, high = max(0, first), min(source.shape[2], last)
            if low >= high:
                return None
            changed = {"padding": (low - first, left), **self.operands(2, start, stop), **more}
            args = (Ref(self.slice(x.id, 2, low, high)), *rest)
            results = (self.slice(self._result, 2, start, stop), *self.rooms(len(tiles)))
            tiles.append(self.tile(len(tiles), args, results, changed))
        return tiles

    def pool(self) -> list[Task] | None:
        if self.result.shape[2] < self._pieces:
            return None
        # A tile has no padding where it was cut; what is below its last row is not counted.
        high, wide = self._given["kernel"]
        if self._given.get("counts_padding") and not self._given["divisor"]:
            return self.rows(divisor=high * wide)
        return self.rows()

    def channels(self) -> list[Task]:
        x, weight, bias = self._task.args
        assert isinstance(weight, Ref)
        self._by_channels.add(self._result)
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[1], PANEL):
            panels = self.slice(weight.id, 1, start // PANEL, -(-stop // PANEL))
            args = (x, Ref(panels), self._part_of_bias(bias, start, stop))
            results = (self.slice(self._result, 1, start, stop), *self.rooms(len(tiles)))
            tiles.append(self.tile(len(tiles), args, results, self.operands(1, start, stop)))
        return tiles

    def channels_apart(self) -> list[Task]:
        """Each channel of the result needs one of the input."""
        x, weight, bias = self._task.args
        assert isinstance(x, Ref)
        assert isinstance(weight, Ref)
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[1], PANEL):
            mine = Ref(self.slice(x.id, 1, start, stop))
            taps = Ref(self.slice(weight.id, 1, start, stop))
            args = (mine, taps, self._part_of_bias(bias, start, stop))
            result = self.slice(self._result, 1, start, stop)
            changed = {"groups": stop - start, **self.operands(1, start, stop)}
            tiles.append(self.tile(len(tiles), args, (result,), changed))
        return tiles

    def _part_of_bias(self, bias: Arg, start: int, stop: int) -> Arg:
        return Ref(self.slice(bias.id, 0, start, stop)) if isinstance(bias, Ref) else bias

    def linear(self) -> list[Task] | None:
        x, weight, bias = self._task.args
        assert isinstance(x, Ref)
        assert isinstance(weight, Ref)
        whole = self.result
        rows, out = self.value(x).shape[0], whole.shape[-1]
        last = len(whole.shape) - 1
        tiles: list[Task] = []
        by_columns = self.value(weight).span > self.value(x).span + whole.span or rows < 24
        if by_columns and out >= self._pieces * PANEL:
            for start, stop in self.ranges(out, PANEL):
                panels = self.slice(weight.id, 1, start // PANEL, -(-stop // PANEL))
                args = (x, Ref(panels), self._part_of_bias(bias, start, stop))
                result = self.slice(self._result, last, start, stop)
                changed = self.operands(last, start, stop)
                tiles.append(self.tile(len(tiles), args, (result,), changed))
            return tiles
        dim = last - 1
        if rows < 24 or dim < 0 or whole.shape[dim] != rows:
            return None
        for start, stop in self.ranges(rows, _ROWS):
            args = (Ref(self.slice(x.id, 0, start, stop)), weight, bias)
            result = self.slice(self._result, dim, start, stop)
            tiles.append(self.tile(len(tiles), args, (result,), self.operands(dim, start, stop)))
        return tiles

    def scatter(self) -> list[Task] | None:
        """By rows of the table: each tile looks at all indices, and takes its own."""
        return [
            self.tile(
                number,
                self._task.args,
                (self.slice(self._result, 0, start, stop),),
                {"first": start},
            )
            for number, (start, stop) in enumerate(self.ranges(self.result.shape[0]))
        ]

    def by_rows(self) -> list[Task] | None:
        """By rows of everything that has as many of them."""
        count = self.result.shape[0]
        if count < self._pieces:
            return None

        def part(arg: Arg, start: int, stop: int) -> Arg:
            whole = not isinstance(arg, Ref) or self.value(arg).shape[:1] != (count,)
            return arg if whole else Ref(self.slice(self.value(arg).id, 0, start, stop))

        return [
            self.tile(
                number,
                tuple(part(arg, start, stop) for arg in self._task.args),
                tuple(self.slice(v, 0, start, stop) for v in self._writes),
                {},
            )
            for number, (start, stop) in enumerate(self.ranges(count))
        ]

    def matmul(self) -> list[Task] | None:
        """By matrices of the batch, by rows, or by columns; each tile with room of its own."""
        x, w = self._task.args
        whole = self.result
        last = len(whole.shape) - 1
        outer = next((d for d in range(last - 1) if whole.shape[d] > 1), None)
        if outer is not None and whole.shape[outer] >= self._pieces:
            # The operands may have the dimensions of the batch as one.
            inner = math.prod(whole.shape[outer + 1 : -2])
            return self._cut_product(outer, 1, lambda a, b: (
                self._of_batch(x, a * inner, b * inner), self._of_batch(w, a * inner, b * inner)
            ))  # fmt: skip
        moved = self.value(x).span + whole.span
        wide = whole.shape[last] >= self._pieces * PANEL
        if whole.shape[last - 1] >= 4 * _ROWS and not (wide and self.value(w).span > moved):
            return self._cut_product(
                last - 1, _ROWS, lambda a, b: (self.along(x, last - 1, whole, a, b), w)
            )
        if wide:
            return self._cut_product(
                last, PANEL, lambda a, b: (x, self.along(w, last, whole, a, b))
            )
        return None

    def mixing(self) -> list[Task] | None:
        """By channels of the result: its weights are larger than its images."""
        x, w = self._task.args
        assert isinstance(w, Ref)
        if self.result.shape[1] < self._pieces * PANEL:
            return None
        return self._cut_product(1, PANEL, lambda a, b: (x, Ref(self.slice(w.id, 1, a, b))))

    def _of_batch(self, arg: Arg, start: int, stop: int) -> Arg:
        assert isinstance(arg, Ref)
        dim = next(d for d, n in enumerate(self.value(arg).shape) if n > 1)
        return Ref(self.slice(arg.id, dim, start, stop))

    def _cut_product(
        self, dim: int, step: int, args: Callable[[int, int], tuple[Arg, ...]]
    ) -> list[Task]:
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[dim], step):
            results = (self.slice(self._result, dim, start, stop), *self.rooms(len(tiles)))
            changed = self.operands(dim, start, stop)
            tiles.append(self.tile(len(tiles), args(start, stop), results, changed))
        return tiles

    def reduce(self) -> list[Task] | None:
        """Along a dimension that is kept: the outermost, or the channels of an image."""
        (x,) = self._task.args
        source, over = self.value(x), self._given["dims"]
        kept = [d for d in range(len(source.shape)) if d not in over]
        least = {d: PANEL if source.strides[d] == 1 else 1 for d in kept}
        able = [d for d in kept if source.shape[d] >= self._pieces * least[d]]
        if not able:
            return None
        dim = max(able, key=lambda d: source.strides[d])
        mine = dim if len(self.result.shape) == len(source.shape) else kept.index(dim)
        tiles: list[Task] = []
        for start, stop in self.ranges(source.shape[dim], least[dim]):
            result = self.slice(self._result, mine, start, stop)
            args = (self.along(x, dim, source, start, stop),)
            tiles.append(self.tile(len(tiles), args, (result,), {}))
        return tiles

    def along_one(self) -> list[Task] | None:
        """What works along one dimension is cut along another."""
        return self.outermost(but=(self._given["dim"],))

    def copy(self) -> list[Task] | None:
        return self.outermost(but=self._given.get("flip", ()))

    def outermost(self, but: tuple[int, ...] = ()) -> list[Task] | None:
        """Along the dimension of the results whose steps are largest."""
        whole = self.result
        able = [d for d, n in enumerate(whole.shape) if n >= self._pieces and d not in but]
        if not able:
            return None
        dim = max(able, key=lambda d: whole.strides[d])
        tiles: list[Task] = []
        for start, stop in self.ranges(whole.shape[dim], self.rows_together(dim)):
            args = tuple(self.along(arg, dim, whole, start, stop) for arg in self._task.args)
            results = tuple(self.slice(v, dim, start, stop) for v in self._task.writes)
            changed = self.operands(dim, start, stop)
            tiles.append(self.tile(len(tiles), args, results, changed))
        return tiles

    def rows_together(self, dim: int) -> int:
        """Rows of a matrix are cut where a product's are, so that each worker keeps its own."""
        whole = self.result
        of_matrix = dim == len(whole.shape) - 2 and whole.strides[-1] == 1
        return _ROWS if of_matrix and whole.shape[dim] >= 4 * _ROWS else 1

    def layer_norm(self) -> list[Task] | None:
        """By rows; weight and bias belong to all of them."""
        whole = self.result
        able = [d for d in range(len(whole.shape) - 1) if whole.shape[d] >= self._pieces]
        if not able:
            return None
        dim = max(able, key=lambda d: whole.strides[d])
        x, weight, bias = self._task.args
        tiles: list[Task] = []
        for start, stop in self.ranges(whole.shape[dim], self.rows_together(dim)):
            args = (self.along(x, dim, whole, start, stop), weight, bias)
            results = tuple(self.slice(v, dim, start, stop) for v in self._writes)
            tiles.append(self.tile(len(tiles), args, results, self.operands(dim, start, stop)))
        return tiles

    def layer_norm_gradient(self) -> list[Task] | None:
        """By rows; the weight belongs to all of them."""
        return self.outermost(but=(len(self.result.shape) - 1,))

    def layer_norm_sums(self) -> list[Task] | None:
        """By columns."""
        gradient, x, *statistics = self._task.args
        (columns,) = self.result.shape
        if columns < self._pieces * PANEL:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(columns, PANEL):
            cut = (
                Ref(self.slice(arg.id, len(self.value(arg).shape) - 1, start, stop))
                for arg in (gradient, x)
                if isinstance(arg, Ref)
            )
            results = tuple(
                None if v is None else self.slice(v, 0, start, stop) for v in self._task.results
            )
            tiles.append(self.tile(len(tiles), (*cut, *statistics), results, {}))
        return tiles

    def group_norm(self) -> list[Task] | None:
        """By elements of the batch, or by groups of channels."""
        x, weight, bias = self._task.args
        whole, groups = self.result, self._given["groups"]
        batch = whole.shape[0] >= self._pieces
        each = 1 if batch else whole.shape[1] // groups
        if not batch and groups < self._pieces:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(whole.shape[0 if batch else 1], each):
            dim = 0 if batch else 1
            changed = self.operands(dim, start, stop)
            scale, shift = weight, bias
            if not batch:
                changed |= {"groups": (stop - start) // each}
                scale, shift = (self._part_of_bias(arg, start, stop) for arg in (weight, bias))
            args = (self.along(x, dim, whole, start, stop), scale, shift)
            result = self.slice(self._result, dim, start, stop)
            tiles.append(self.tile(len(tiles), args, (result,), changed))
        return tiles

    def resample(self) -> list[Task] | None:
        """By rows of the result; any of them may need any of the input's."""
        if self.result.shape[2] < self._pieces:
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(self.result.shape[2]):
            result = self.slice(self._result, 2, start, stop)
            changed = {"first": self._given["first"] + start}
            tiles.append(self.tile(len(tiles), self._task.args, (result,), changed))
        return tiles

    def attention(self) -> list[Task] | None:
        """By sequences, by heads or by queries, each tile with room of its own for scores. All
        tensors begin with the first two, but for the room, and for a mask that belongs to all."""
        task, whole = self._task, self.result
        same_heads = all(self.value(arg).shape[1] == whole.shape[1] for arg in task.args[:3])
        dim = 0 if whole.shape[0] >= self._pieces else 1
        if dim == 1 and self._by_queries():
            dim = 2
        elif whole.shape[dim] < self._pieces or (dim == 1 and not same_heads):
            return None
        tiles: list[Task] = []
        for start, stop in self.ranges(whole.shape[dim], _ROWS if dim == 2 else 1):
            results = []
            for v in task.writes:
                value = self._edit.values[v]
                if len(value.shape) > 1:
                    results.append(self.slice(v, dim, start, stop))
                else:
                    name = f"{value.name}.{len(tiles)}"
                    results.append(
                        self._edit.add_root(name, Role.INTERMEDIATE, value.dtype, value.shape)
                    )
            # Every query meets all keys and values: the second and the third of the operands.
            args = tuple(
                arg if dim == 2 and place in (1, 2) else self._part_of(arg, dim, start, stop)
                for place, arg in enumerate(task.args)
            )
            tiles.append(self.tile(len(tiles), args, tuple(results), {}))
        return tiles

    def _by_queries(self) -> bool:
        """Where heads come out uneven: each tile takes some queries of all heads."""
        heads, queries = self.result.shape[1:3]
        able = self._task.op == "nimble.attention" and not self._given["causal"]
        return able and heads % self._pieces != 0 and queries >= 4 * _ROWS * self._pieces

    def _part_of(self, arg: Arg, dim: int, start: int, stop: int) -> Arg:
        """Of a tensor (sequences, heads, …), or of a mask that is broadcast to one."""
        if not isinstance(arg, Ref):
            return arg
        value = self.value(arg)
        is_sum = len(value.shape) == 3 and arg is self._task.args[-2]
        mine = dim if is_sum else dim - (4 - len(value.shape))
        if mine < 0 or value.shape[mine] != self.result.shape[dim]:
            return arg
        return Ref(self.slice(arg.id, mine, start, stop))

    def by_batch(self) -> list[Task] | None:
        """PyTorch's own operators of attention: all that they read and write begins with the
        batch, but for a mask that belongs to all of it."""
        task, size = self._task, self.result.shape[0]
        touched = [self._edit.values[v] for v in (*task.reads, *task.writes)]
        if size < self._pieces or any(value.dtype is DType.TOKEN for value in touched):
            return None

        def part(arg: Arg, start: int, stop: int) -> Arg:
            if not isinstance(arg, Ref):
                return arg
            shape = self.value(arg).shape
            whole = len(shape) < 3 or shape[0] != size
            return arg if whole else Ref(self.slice(arg.id, 0, start, stop))

        tiles: list[Task] = []
        for start, stop in self.ranges(size):
            args = tuple(part(arg, start, stop) for arg in task.args)
            changed = {name: part(arg, start, stop) for name, arg in task.kwargs}
            results = tuple(self.slice(v, 0, start, stop) for v in task.writes)
            tiles.append(self.tile(len(tiles), args, results, changed))
        return tiles


_BY_BATCH = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
}
_SPLITS: dict[str, Callable[[Tiles], list[Task] | None]] = {
    "nimble.convolution": Tiles.convolution,
    "nimble.cross_entropy": Tiles.by_rows,
    "nimble.cross_entropy_gradient": Tiles.by_rows,
    "nimble.depthwise": Tiles.depthwise,
    "nimble.winograd": Tiles.winograd,
    "nimble.pool": Tiles.pool,
    "nimble.pool_gradient": Tiles.pool_gradient,
    "nimble.linear": Tiles.linear,
    "nimble.pointwise": Tiles.outermost,
    "nimble.copy": Tiles.copy,
    "nimble.layer_norm": Tiles.layer_norm,
    "nimble.layer_norm_gradient": Tiles.layer_norm_gradient,
    "nimble.layer_norm_sums": Tiles.layer_norm_sums,
    "nimble.rms_norm": Tiles.layer_norm,
    "nimble.group_norm": Tiles.group_norm,
    "nimble.matmul": Tiles.matmul,
    "nimble.softmax": Tiles.along_one,
    "nimble.reduce": Tiles.reduce,
    "nimble.resample": Tiles.resample,
    "nimble.scatter": Tiles.scatter,
    "nimble.attention": Tiles.attention,
    "nimble.attention_gradient": Tiles.attention,
    "nimble.depthwise_gradient": Tiles.weight_gradient,
    "nimble.gradient_sums": Tiles.statistics,
    "nimble.mixing": Tiles.mixing,
    "nimble.moments": Tiles.statistics,
    "nimble.weight_gradient": Tiles.weight_gradient,
    **dict.fromkeys(_BY_BATCH, Tiles.by_batch),
}
