"""The networks that were measured, captured, and what the paper's system makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from nimble.devices.sim.phases import Phase, phases
from nimble.devices.sim.work import Work, kernels
from nimble.foresee import Subject, capture_call, capture_step
from nimble.graph import Graph
from nimble.rewrite import fold_batch_norm, remove_dead_tasks
from nimble.rewrite.operators import is_pointwise
from nimble.schedule.assignment import Assignment, concurrent
from nimble.schedule.build import order_of
from nimble.zoo import untrained


@dataclass(frozen=True)
class Captured:
    """One network, ready to be predicted again and again with other constants."""

    subject: Subject
    eager: Work
    called: tuple[Phase, ...]
    """How eager PyTorch calls each of its tasks."""
    graph: Graph
    """What the paper's system captures: batch norms folded; of a training step, all but the
    optimizer's update, which it leaves to PyTorch."""
    work: Work
    assignment: Assignment
    """Its streams and waits."""
    updates: NDArray[np.int64]
    """Of a training step: the tasks of the update in the eager graph."""

    @cached_property
    def unfused(self) -> Assignment:
        """Streams and waits of the operators as PyTorch calls them."""
        return concurrent(order_of(self.subject.eager))


def capture_network(name: str) -> Captured:
    """A network's call in eval mode, as in `resnet50@224x1`."""
    model, inputs = untrained(name)
    subject = capture_call(_of_its_time(model), inputs, {}, name)
    return _captured(subject, remove_dead_tasks(fold_batch_norm(subject.eager)))


def capture_training(name: str) -> Captured:
    """A training step as the paper took it: cross entropy, SGD with momentum."""
    model, inputs = untrained(name)
    model = _of_its_time(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    goal = torch.zeros(len(inputs[0]), dtype=torch.long)
    subject = capture_step(model, cross_entropy, optimizer, (*inputs, goal), name)
    called = phases(subject.eager, subject.numbers)
    kept = (Phase.FORWARD, Phase.BACKWARD)
    tasks = (t for t, phase in zip(subject.eager.tasks, called, strict=True) if phase in kept)
    return _captured(subject, subject.eager.with_tasks(tasks))


class Swish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


def _of_its_time(model: nn.Module) -> nn.Module:
    """PyTorch 1.4 had no operator for SiLU, so networks called two."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.SiLU):
                setattr(module, name, Swish())
    return model


def _captured(subject: Subject, graph: Graph) -> Captured:
    called = tuple(phases(subject.eager, subject.numbers))
    return Captured(
        subject,
        Work.of(subject.eager),
        called,
        graph,
        fused(graph),
        concurrent(order_of(graph)),
        np.flatnonzero(np.array(called) == Phase.UPDATE),
    )


def fused(graph: Graph) -> Work:
    """The work of a graph whose pointwise operators are fused, as the paper's system does: one
    whose result only the next reads becomes a part of that, and so does the bias before it."""
    mine = [kernels(graph, task) for task in graph.tasks]
    only = _only_readers(graph)
    for t, task in enumerate(graph.tasks):
        reader = only.get(t)
        if reader is None or not is_pointwise(graph.tasks[reader].op):
            continue
        made = graph[task.writes[0]]
        if task.op.startswith("aten.convolution."):
            mine[t] = mine[t][:1]
        elif is_pointwise(task.op) and mine[t] and mine[reader]:
            more = mine[t][0].bytes - 2 * made.numel * made.dtype.itemsize
            first = mine[reader][0]
            mine[reader][0] = replace(first, bytes=max(first.bytes + more, 0))
            mine[t] = []
    return Work.of_kernels(mine)


def _only_readers(graph: Graph) -> dict[int, int]:
    """For tasks whose one result one other task reads, and nobody else: that task."""
    readers: dict[int, set[int]] = {}
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            readers.setdefault(graph.content(v).id, set()).add(t)
    kept = {graph.content(v).id for v in graph.outputs}
    found = {}
    for t, task in enumerate(graph.tasks):
        if len(task.writes) == 1 and task.writes[0] not in kept:
            mine = readers.get(graph.content(task.writes[0]).id, set())
            if len(mine) == 1:
                found[t] = next(iter(mine))
    return found


def in_sequence(issued: ArrayLike, alone: NDArray[np.float64]) -> float:
    """When the last of these ends, on one stream: each after the one before, and once issued."""
    if not len(alone):
        return 0.0
    before = np.concatenate([[0.0], np.cumsum(alone)[:-1]])
    return float(np.max(np.asarray(issued) - before) + alone.sum())
