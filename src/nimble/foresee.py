"""What a model would take on a GPU: eager, on one stream and on several, before anyone has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nimble.capture import CPU, Target, capture
from nimble.cpu import Cpu
from nimble.devices.sim import (
    Choice,
    Constants,
    Gpu,
    Host,
    Prediction,
    choose_for_gpu,
    costs,
    find_gpu,
    find_host,
    predict,
    predict_eager,
)
from nimble.engine.arguments import checked
from nimble.graph import Graph
from nimble.rewrite import remove_dead_tasks, rewrite
from nimble.schedule import schedule
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


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Predictions for one subject on one GPU, and the schedule chosen for it."""

    subject: Subject
    gpu: Gpu
    host: Host
    eager: Prediction
    single: Prediction
    """A captured graph on one stream."""
    assigned: Prediction
    """On the streams of Nimble's exact assignment."""
    choice: Choice

    @property
    def gain(self) -> float:
        """The best found on several streams, against one stream: 1.25 is a quarter faster."""
        return self.single.ns / min(self.assigned.ns, self.choice.prediction.ns)

    @property
    def verdict(self) -> str:
        """Whether several streams help here, and by how much, in a sentence."""
        used = len(self.choice.schedule.streams)
        if len(self.assigned.streams) <= 1:
            return "One stream: every task depends on the one before it, so more cannot help."
        if used <= 1:
            ratio = self.assigned.ns / self.single.ns - 1
            return (
                "One stream: several do not clearly help here. Nimble's "
                f"{len(self.assigned.streams)} streams are predicted to be {abs(ratio):.1%} "
                f"{'slower' if ratio > 0 else 'faster'}."
            )
        return (
            f"{used} streams: predicted {self.single.ns / self.choice.prediction.ns:.2f} times as "
            "fast as one stream."
        )


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


def foresee(
    subject: Subject,
    gpu: Gpu | str,
    host: Host | None = None,
    *,
    streams: int | None = None,
    memory_limit: int | None = None,
    constants: Constants | None = None,
) -> Foreseen:
    """Predict a subject on a GPU in every way, and choose a schedule for it."""
    found = find_gpu(gpu) if isinstance(gpu, str) else gpu
    host = host or find_host("recent")
    graph, prices = subject.planned, costs(found, constants)
    single = schedule(graph, streams=1, costs=prices)
    return Foreseen(
        subject,
        found,
        host,
        predict_eager(
            subject.eager, found, numbers=subject.numbers, constants=constants, host=host
        ),
        predict(single, found, constants=constants),
        predict(schedule(graph, costs=prices), found, constants=constants),
        choose_for_gpu(graph, found, streams, memory_limit, constants=constants),
    )
