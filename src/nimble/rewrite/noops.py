"""Remove tasks whose result is, bit for bit, what they were given."""

from __future__ import annotations

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task, Value, is_dense
from nimble.rewrite.operators import arguments, pure_tasks


def remove_noops(graph: Graph) -> Graph:
    """Let the readers of a copy read the original, wherever nobody can tell the difference.

    A copy stays if its original is written over later, or if it is handed to the caller, who may
    write to it, while its original belongs to someone else.
    """
    edit = Edit(graph)
    pure = pure_tasks(graph)
    for t, task in enumerate(graph.tasks):
        source = _copied(graph, task) if t in pure else None
        if source is None or not _may_share(edit, source, result := task.writes[0]):
            edit.tasks.append(task)
            continue
        if edit.values[result].role is Role.OUTPUT:
            edit.set_role(edit.content(source).id, Role.OUTPUT)
        edit.alias(result, source)
    return edit.done()


def _may_share(edit: Edit, source: int, result: int) -> bool:
    old, new, content = edit.values[source], edit.values[result], edit.content(source)
    if (old.dtype, _layout(old)) != (new.dtype, _layout(new)) or not is_dense(new):
        return False
    graph = edit.graph
    if graph.final(graph.homes[source]) != graph.content(source).id:
        return False
    if new.role is Role.OUTPUT:
        whole = content.is_root and (content.shape, content.strides) == (old.shape, old.strides)
        return content.role is Role.INTERMEDIATE and whole and old.strides == new.strides
    return True


def _layout(value: Value) -> tuple[tuple[int, ...], list[int]]:
    """Shape and strides; the stride of a dimension of size 1 means nothing."""
    return value.shape, [s for n, s in zip(value.shape, value.strides, strict=True) if n != 1]


def _copied(graph: Graph, task: Task) -> int | None:
    """The value of which the task's only result is a copy, up to layout and dtype."""
    if len(task.writes) != 1:
        return None
    given = arguments(task)
    original = given.get("self")
    if task.op == "aten.cat.default" and isinstance(tensors := given["tensors"], tuple):
        return tensors[0].id if len(tensors) == 1 and isinstance(tensors[0], Ref) else None
    if task.op == "aten.copy.default":  # of `src`, in the layout of `self`
        return given["src"].id if isinstance(given["src"], Ref) else None
    if not isinstance(original, Ref):
        return None
    name = task.op.split(".")[1]
    is_copy = (
        name in ("clone", "_to_copy", "lift_fresh_copy", "contiguous")
        or (name == "constant_pad_nd" and _all(given["pad"], 0))
        or (name == "repeat" and _all(given["repeats"], 1))
        or (task.op in _NEUTRAL and _is_neutral(graph[original.id].dtype, name, given))
    )
    return original.id if is_copy else None


def _is_neutral(dtype: DType, name: str, given: dict[str, Arg]) -> bool:
    """Whether `original op number` is the original, also for -0.0, infinities and NaN."""
    other = given["other"]
    if dtype in _COMPLEX or not isinstance(other, int | float):
        return False
    if name in ("mul", "div"):
        return other == 1 and given.get("rounding_mode") is None
    if other != 0 or str(other).startswith("-") or given["alpha"] != 1:
        return False
    # -0.0 + 0.0 is 0.0, so that adding zero changes a float, while subtracting it does not.
    return name == "sub" or dtype not in _FLOATS


def _all(arg: Arg, number: int) -> bool:
    return isinstance(arg, tuple) and all(item == number for item in arg)


_FLOATS = {DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16}
_COMPLEX = {DType.COMPLEX64, DType.COMPLEX128}
_NEUTRAL = {
    f"aten.{name}.{overload}"
    for name in ("add", "sub", "mul", "div")
    for overload in ("Tensor", "Scalar")
}
