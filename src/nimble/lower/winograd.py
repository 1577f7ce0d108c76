"""Convolutions by 3 x 3 as products of transformed tiles: fewer multiplications, more weights.

Which of them gain is for a measurement to say. `candidates` are those worth one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.lower.kernels import PANEL
from nimble.rewrite import fold_constants

SIDES = (4, 2)
"""Pixels of the output that a tile has on a side."""
_GAP = 16
_PANELS = 2
"""winograd_gap and winograd_panels of native/kernels/winograd.h."""
_ROWS = 6
"""Tiles that are multiplied at once."""
_MOST_VALUES = 1 << 17
"""Floats of transformed input that stay in the second-level cache."""
_LEAST_GAIN = 1.4
"""Multiplications saved that can pay for the transforms."""
_MOST_WEIGHTS = {4: 2_500_000, 2: 9_000_000}
"""Bytes of transformed weights; more take longer on their way from memory than they save."""


def candidates(graph: Graph, *, all_sides: bool = False) -> list[dict[str, int]]:
    """What to try, task by name → side. One trial with the side that is likely best for each, or
    one for every side."""
    found: list[dict[str, int]] = [{} for _ in SIDES]
    for task in graph.tasks:
        for number, side in enumerate(s for s in SIDES if _can(graph, task, s)):
            likely = all_sides or _weights(graph, task, side) * 4 <= _MOST_WEIGHTS[side]
            if likely:
                found[number if all_sides else 0].setdefault(task.name, side)
    return [trial for trial in found if trial]


def is_candidate(graph: Graph, task: Task) -> bool:
    """Whether any side is worth a trial."""
    return any(
        _can(graph, task, side) and _weights(graph, task, side) * 4 <= _MOST_WEIGHTS[side]
        for side in SIDES
    )


def use_winograd(graph: Graph, sides: Mapping[str, int]) -> Graph:
    """The graph with these convolutions in tiles of these sides."""
    if not sides:
        return graph
    edit = Edit(graph)
    made: dict[tuple[int, int], Ref] = {}
    for task in graph.tasks:
        if task.name in sides and _can(graph, task, sides[task.name]):
            edit.tasks += _converted(edit, graph, task, sides[task.name], made)
        else:
            edit.tasks.append(task)
    return fold_constants(edit.done())


def _can(graph: Graph, task: Task, side: int) -> bool:
    if task.op != "nimble.convolution":
        return False
    given = dict(task.kwargs)
    x, weight = task.args[:2]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    plain = given["kernel"] == (3, 3) and given["stride"] == given["dilation"] == (1, 1)
    if not plain or given["groups"] != 1 or graph[x.id].shape[1] % 8:
        return False
    if graph.content(weight.id).id != weight.id or graph[weight.id].role is not Role.CONSTANT:
        return False
    _, _, high, wide = graph[task.writes[0]].shape
    return 9 * high * wide >= _LEAST_GAIN * (side + 2) ** 2 * _tiles(high, wide, side)


def _tiles(high: int, wide: int, side: int) -> int:
    return -(-high // side) * -(-wide // side)


def _weights(graph: Graph, task: Task, side: int) -> int:
    """Floats of transformed weights."""
    weight = task.args[1]
    assert isinstance(weight, Ref)
    return graph[weight.id].numel // 9 * (side + 2) ** 2


def _block(channels: int, tiles: int, side: int) -> int:
    """Tiles to transform together: as many as the cache holds, in blocks of about the same size."""
    most = max(1, _MOST_VALUES // ((side + 2) ** 2 * channels) // _ROWS) * _ROWS
    blocks = -(-tiles // most)
    return -(-tiles // (blocks * _ROWS)) * _ROWS


def _converted(
    edit: Edit, graph: Graph, task: Task, side: int, made: dict[tuple[int, int], Ref]
) -> Iterable[Task]:
    x, weight, bias = task.args
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    elements = (side + 2) ** 2
    _, panels, _, channels, _ = graph[weight.id].shape
    if (weight.id, side) not in made:
        shape = (1, panels, elements, channels, PANEL)
        name = f"{graph[weight.id].name}.winograd{side}"
        packed = edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, shape)
        made[weight.id, side] = Ref(packed)
        pack = call(
            f"{task.name}.weights", "nimble.pack_winograd", (weight,), (packed,),
            (("side", side),), task.origin,
        )  # fmt: skip
        yield replace(pack, kernel="native")
    _, _, high, wide = graph[task.writes[0]].shape
    block = _block(channels, _tiles(high, wide, side), side)
    room = elements * (block * (channels + _PANELS * PANEL) + 2 * _GAP)
    scratch = edit.add_root(f"{task.name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (room,))
    kwargs: tuple[tuple[str, Arg], ...] = (*task.kwargs, ("side", side), ("block", block))
    args = (x, made[weight.id, side], bias)
    result = (*task.results, scratch)
    tiled = call(task.name, "nimble.winograd", args, result, kwargs, task.origin)
    yield replace(tiled, kernel="native", cost=task.cost)
