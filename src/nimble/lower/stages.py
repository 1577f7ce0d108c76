"""The lowering stage: its passes, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nimble.graph import Graph, Task
from nimble.lower.activations import recognise_activations
from nimble.lower.batch_norm import open_batch_norms
from nimble.lower.concat import free_concatenations
from nimble.lower.couples import multiply_in_bfloat16
from nimble.lower.draws import keep_draws_small
from nimble.lower.early import check_first, update_early
from nimble.lower.fuse import fuse
from nimble.lower.gates import gate_weights
from nimble.lower.heads import open_heads
from nimble.lower.kernels import Supported
from nimble.lower.layout import lay_channels_last
from nimble.lower.losses import recognise_losses
from nimble.lower.norms import recognise_norms
from nimble.lower.program import POINTWISE
from nimble.lower.recurrent import open_recurrent
from nimble.lower.remake import remake
from nimble.lower.states import write_states
from nimble.lower.training import open_training_norms
from nimble.lower.widen import widen
from nimble.rewrite.steps import Step


def lower(graph: Graph, supported: Supported) -> tuple[Graph, tuple[Step, ...]]:
    """The graph in tasks that the device's own kernels compute, where it has such kernels; the
    other tasks stay as they are."""

    passes: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
        ("compute in float32", widen),
        ("open batch norms", open_batch_norms),
        ("open norms in training", open_training_norms),
        ("open recurrent layers", open_recurrent),
        ("keep draws small", keep_draws_small),
        ("recognise norms", lambda g: recognise_norms(g, supported)),
        ("recognise losses", lambda g: recognise_losses(g, supported)),
        ("recognise activations", recognise_activations),
        ("lay channels last", lambda g: lay_channels_last(g, POINTWISE)),
        ("choose kernels", lambda g: open_heads(g, supported)),
        ("gate weights", lambda g: gate_weights(g, supported)),
        ("multiply in bfloat16", lambda g: multiply_in_bfloat16(g, supported)),
        ("fuse", lambda g: fuse(g, supported)),
        ("make again", lambda g: remake(g, supported)),
        ("free concatenations", lambda g: free_concatenations(g, supported)),
        ("write states in place", write_states),
        ("check before updates", check_first),
        ("update early", update_early),
    )
    steps = []
    for name, change in passes:
        before, graph = graph, change(graph)
        steps.append(Step.of(name, before, graph))
    return _with_kernels(graph), tuple(steps)


def _with_kernels(graph: Graph) -> Graph:
    prologue = _with_kernels(graph.prologue) if graph.prologue is not None else None
    return replace(graph.with_tasks(map(_with_kernel, graph.tasks)), prologue=prologue)


def _with_kernel(task: Task) -> Task:
    return replace(task, kernel="native") if task.op.startswith("nimble.") else task
