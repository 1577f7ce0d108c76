"""The same training twice, in eager and in one plan a step, and a picture of both."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from rich.progress import track
from torch import nn

import nimble

Batches = list[tuple[torch.Tensor, torch.Tensor]]
Run = tuple[list[float], list[float]]
"""Seconds and loss after each step."""


def race(
    model: nn.Module,
    loss_fn: Callable[..., torch.Tensor],
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    scheduler: Callable[[torch.optim.Optimizer], Any],
    batches: Batches,
    clip_norm: float,
) -> dict[str, Run]:
    """Train copies of a model on the same batches, from the same seed."""
    runs: dict[str, Run] = {}
    for name in ("eager", "nimble"):
        trained = copy.deepcopy(model).train()
        updates = optimizer(trained.parameters())
        rates = scheduler(updates)
        if name == "nimble":
            step = nimble.compile_step(trained, loss_fn, updates, batches[0], clip_norm=clip_norm)
            step.prepare(*min(batches, key=lambda batch: len(batch[0])))
        else:
            step = eager_step(trained, loss_fn, updates, clip_norm)
        torch.manual_seed(1)
        seconds, losses, start = [], [], time.perf_counter()
        for x, y in track(batches, f"{name:7}"):
            losses.append(step(x, y).item())
            rates.step()
            seconds.append(time.perf_counter() - start)
        runs[name] = seconds, losses
    return runs


def eager_step(
    model: nn.Module,
    loss_fn: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    clip_norm: float,
) -> Callable[..., torch.Tensor]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        return loss.detach()

    return step


def report(title: str, runs: dict[str, Run], picture: Path) -> None:
    """Print how the runs ended, and draw their losses."""
    apart = max(abs(a - b) for a, b in zip(runs["eager"][1], runs["nimble"][1], strict=True))
    for name, (seconds, losses) in runs.items():
        print(f"{name:7} loss {losses[0]:.3f} -> {losses[-1]:.3f} in {seconds[-1]:.1f} s")
    print(f"losses at most {apart:.1e} apart; drawn in {picture}")
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for name, style in (("eager", {"lw": 3, "alpha": 0.45}), ("nimble", {"lw": 1.1})):
        axes.plot(runs[name][1], label=name, **style)
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})
