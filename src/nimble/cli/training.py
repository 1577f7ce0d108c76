"""A TARGET in training: its module, loss, optimizer and a batch, where only shapes matter."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from nimble import zoo
from nimble.bench.training import OPTIMIZERS, goal, loss
from nimble.errors import InputError
from nimble.targets import Made, check_target, make

StepParts = tuple[torch.nn.Module, Callable[..., Any], torch.optim.Optimizer, tuple[Any, ...]]


def untrained(name: str) -> Made:
    """What a TARGET names; a built-in network with whatever weights PyTorch draws."""
    check_target(name)
    if ":" in name:
        return make(name)
    model, inputs = zoo.untrained(name)
    return Made(name, model, inputs, {})


def in_training(name: str, optimizer: str) -> StepParts:
    """A module in training, a loss, one of OPTIMIZERS, and a batch that ends with the target."""
    if optimizer not in OPTIMIZERS:
        raise InputError(f"--train {optimizer}: expected one of {', '.join(OPTIMIZERS)}")
    made = untrained(name)
    if not isinstance(made.model, torch.nn.Module) or made.kwargs:
        raise InputError(f"{name}: only a module with positional arguments can be trained here")
    network = made.model.train()
    target = goal(_shapes(network, made.args))
    return network, loss, OPTIMIZERS[optimizer](network.parameters()), (*made.args, target)


def _shapes(network: torch.nn.Module, args: tuple[Any, ...]) -> Any:
    """What a network gives, without its contents."""
    copied = deepcopy(network).to("meta")
    on_meta = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), args)
    with torch.no_grad():
        return copied(*on_meta)
