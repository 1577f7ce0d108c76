"""Graph → Graph for a GPU: channels last, where there are images. Kernels are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nimble.devices.cuda.calls import has_out_variant
from nimble.graph import Edit, Graph, Ref, Role, Symbol, call
from nimble.lower.early import update_early
from nimble.lower.layout import channels_last, lay_channels_last
from nimble.lower.program import POINTWISE
from nimble.rewrite import Step, fold_constants

Pass = tuple[str, Callable[[Graph], Graph]]
_CONVOLUTION = "aten.convolution.default"


def has_images(graph: Graph) -> bool:
    """Whether there are convolutions, which may be faster in another layout."""
    return any(
        task.op == _CONVOLUTION and len(graph[task.reads[0]].shape) == 4 for task in graph.tasks
    )


def lower(graph: Graph) -> tuple[Graph, tuple[Step, ...]]:
    """What is done in every layout."""
    return _passed(
        graph, ("drop unread results", drop_unread_results), ("update early", update_early)
    )


def lower_channels_last(graph: Graph) -> tuple[Graph, tuple[Step, ...]]:
    """The graph with images, and the weights of convolutions, laid out channels last."""
    return _passed(
        graph,
        ("lay channels last", lambda g: lay_channels_last(g, POINTWISE)),
        ("lay weights channels last", lay_weights_channels_last),
        ("fold constants", fold_constants),
    )


def _passed(graph: Graph, *passes: Pass) -> tuple[Graph, tuple[Step, ...]]:
    steps = []
    for name, change in passes:
        before, graph = graph, change(graph)
        steps.append(Step.of(name, before, graph))
    return graph, tuple(steps)


def drop_unread_results(graph: Graph) -> Graph:
    """Results that nobody reads, of operators that make new tensors anyway, get no place in the
    arena: the means and deviations of a layer norm, say."""
    read = {graph.content(v).id for v in (*graph.readers, *graph.outputs)}
    edit = Edit(graph)
    for task in graph.tasks:
        unread = {v for v in task.results if v is not None and graph.content(v).id not in read}
        if unread and len(unread) < len(task.writes) and not has_out_variant(task):
            results = tuple(None if v in unread else v for v in task.results)
            writes = tuple(v for v in task.writes if v not in unread)
            task = replace(task, results=results, writes=writes)
        edit.tasks.append(task)
    return edit.done() if edit.tasks != list(graph.tasks) else graph


def lay_weights_channels_last(graph: Graph) -> Graph:
    """Copies of fixed weights with the channels innermost: cuDNN would make one at every call."""
    edit = Edit(graph)
    laid: dict[int, int] = {}
    for task in graph.tasks:
        weight = task.args[1] if task.op == _CONVOLUTION else None
        if not isinstance(weight, Ref) or not _is_fixed_image(graph, weight.id):
            edit.tasks.append(task)
            continue
        old = graph[weight.id]
        if old.id not in laid:
            name = f"{task.name}.weight_last"
            laid[old.id] = edit.add_root(
                name, Role.INTERMEDIATE, old.dtype, old.shape, channels_last(old.shape)
            )
            order = (("memory_format", Symbol("memory_format", "channels_last")),)
            edit.tasks.append(
                call(name, "aten.clone.default", (weight,), (laid[old.id],), order, task.origin)
            )
        new = laid[old.id]
        args = (task.args[0], Ref(new), *task.args[2:])
        reads = tuple(new if v == old.id else v for v in task.reads)
        edit.tasks.append(replace(task, args=args, reads=reads))
    return edit.done() if laid else graph


def _is_fixed_image(graph: Graph, id: int) -> bool:
    value = graph[id]
    fixed = graph.content(id).role in (Role.PARAMETER, Role.CONSTANT)
    return fixed and len(value.shape) == 4 and value.strides != channels_last(value.shape)
