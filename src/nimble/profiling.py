"""Engine → profile: what a captured training step computes and communicates per iteration."""

from __future__ import annotations

import re
from typing import Any

import torch

from nimble.cluster.buckets import FULL, bucketed
from nimble.cluster.profile import Profile
from nimble.cpu import Cpu
from nimble.devices.sim import Gpu, predict_eager, published_error
from nimble.errors import InputError
from nimble.graph import Graph, refs
from nimble.rewrite import remove_dead_tasks
from nimble.settings import Settings
from nimble.train import Step, StepOptions

_KEPT = re.compile(r"grads\.[^.]+")
"""The states that `keep_grads` keeps gradients in, by parameter."""


def profile_step(
    model: torch.nn.Module,
    loss_fn: Any,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Any, ...],
    name: str,
    gpu: Gpu,
    bucket_bytes: int = FULL,
) -> Profile:
    """The profile of a data-parallel job that takes this step on every GPU.

    Bytes, and the order in which gradients become ready, are those of the captured step; computing
    is predicted for `gpu`. Communication may run from when the first bucket is full until the last
    gradient is ready.
    """
    options = StepOptions(keep_grads=True)
    step = Step(model, loss_fn, optimizer, Settings(1), Cpu(), options, name)
    graph = remove_dead_tasks(step.graph(*batch))
    gradients, copies = _gradients(graph)
    if not gradients:
        raise InputError(f"{name}: the step has no gradients; is every parameter frozen?")
    # The copies that keep the gradients are ours, not the job's.
    bare = graph.with_tasks(task for place, task in enumerate(graph.tasks) if place not in copies)
    kept = [place for place in range(len(graph.tasks)) if place not in copies]
    seen = predict_eager(bare, gpu, numbers=graph.inputs[0])
    ends = dict(zip(kept, seen.ends, strict=True))
    ready = sorted((ends[task], task, size) for task, size in gradients)
    sizes = [size for _, _, size in ready]
    buckets = bucketed(sizes, bucket_bytes)
    return Profile(
        name=name,
        compute_s=seen.ns / 1e9,
        buckets=buckets,
        overlap=(ready[-1][0] - _first_full(ready, buckets[0])) / seen.ns,
        skew=max(sizes) / sum(sizes),
        source=f"a step of {name} captured with {type(optimizer).__name__}: bytes and order exact; "
        f"compute and overlap predicted for a {gpu.name} (not measured; the modelled GPU's median "
        f"error on published speed-ups is {published_error().median:.0%})",
    )


def _gradients(graph: Graph) -> tuple[list[tuple[int, int]], set[int]]:
    """(the task that makes it, bytes) of every gradient, and the tasks that only keep them."""
    found, copies = [], set()
    for root in graph.values:
        if root.is_root and _KEPT.fullmatch(root.name) and graph.final(root.id) != root.id:
            value = graph.final(root.id)
            # From the memory it is kept in, back through two copies, to where it is made.
            for _ in range(2):
                task = graph.writer[value]
                copies.add(task)
                value = graph.content(list(refs(graph.tasks[task].args))[-1]).id
            found.append((graph.writer[value], root.numel * root.dtype.itemsize))
    return found, copies


def _first_full(ready: list[tuple[float, int, int]], first: int) -> float:
    """When the first bucket holds all of its bytes."""
    held = 0
    for at, _, size in ready:
        held += size
        if held >= first:
            return at
    raise AssertionError(first)
