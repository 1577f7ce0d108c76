"""What PyTorch's kernels of attention count on: elements of a head that lie side by side."""

from __future__ import annotations

from nimble.graph import Arg, Edit, Graph, Ref, Role, Symbol
from nimble.graph.edit import call, reading

_PREFIX = "aten._scaled_dot_product"


def straighten_attention(graph: Graph) -> Graph:
    """Copy queries, keys and values whose elements do not lie side by side.

    PyTorch chooses the kernel by the strides it sees in eager. A cache that is updated through a
    transposed view has other ones once the update is functional.
    """
    edit = Edit(graph)
    for task in graph.tasks:
        straight: dict[int, int] = {}
        for arg in task.args[:3] if task.op.startswith(_PREFIX) else ():
            if isinstance(arg, Ref) and arg.id not in straight and _is_crooked(graph, arg):
                value = graph[arg.id]
                name = f"{task.name}.straight{len(straight)}"
                made = edit.add_root(name, Role.INTERMEDIATE, value.dtype, value.shape)
                order = (("memory_format", Symbol("memory_format", "contiguous_format")),)
                edit.tasks.append(
                    call(name, "aten.clone.default", (arg,), (made,), order, task.origin)
                )
                straight[arg.id] = made
        edit.tasks.append(reading(task, straight))
    return edit.done() if len(edit.tasks) > len(graph.tasks) else graph


def _is_crooked(graph: Graph, arg: Arg) -> bool:
    assert isinstance(arg, Ref)
    value = graph[arg.id]
    return bool(value.shape) and value.shape[-1] > 1 and value.strides[-1] != 1
