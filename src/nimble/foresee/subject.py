"""A model's call or a training step, captured without a GPU, for a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nimble.capture import CPU, Target, capture
from nimble.cpu import Cpu
from nimble.engine.arguments import checked
from nimble.graph import Graph
from nimble.rewrite import remove_dead_tasks, rewrite
from nimble.settings import Settings
from nimble.train import Step, StepOptions


@dataclass(frozen=True, slots=True)
class Subject:
    """What a prediction is about: a model's call or a training step, captured without a GPU."""

    name: str
    eager: Graph
    """As PyTorch calls it: nothing folded."""
    planned: Graph
    """Rewritten, as a schedule is made for it."""
    numbers: int | None = None
    """Of a training step: the input with the optimizer's numbers."""


def capture_call(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Subject:
    """A model's call on these arguments."""
    target = Target.of(model)
    tensors, structure, _ = checked(args, dict(kwargs), target.parameters(), CPU.device)
    with torch.no_grad():
        captured = capture(target, tensors, structure, name).graph
    return Subject(name, remove_dead_tasks(captured), rewrite(captured)[0])


def capture_step(
    model: torch.nn.Module,
    loss_fn: Any,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Any, ...],
    name: str,
) -> Subject:
    """A whole training step on a batch: forward, loss, backward and update."""
    step = Step(model, loss_fn, optimizer, Settings(1), Cpu(), StepOptions(), name)
    graph = remove_dead_tasks(step.graph(*batch))
    return Subject(name, graph, rewrite(graph)[0], graph.inputs[0])
