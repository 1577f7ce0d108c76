"""Networks in training, as models to bench: `mobilenet_v2@32x32 with sgd` is one.

Called, such a model takes two steps on a batch and gives the first loss, and by how much the second
differs, which depends on the update between them. Contestants are timed on single steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nimble.errors import InputError
from nimble.targets import Made, check_target
from nimble.targets import make as make_model

_WITH = " with "
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=1e-4, momentum=0.9),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-4),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-4),
}
"""With rates so small that networks which have learnt nothing do not magnify rounding errors."""


def named(model: str, optimizer: str) -> str:
    """What a network in training is called."""
    if optimizer not in OPTIMIZERS:
        raise InputError(f"--train {optimizer}: expected one of {', '.join(OPTIMIZERS)}")
    check_target(model)
    return f"{model}{_WITH}{optimizer}"


def is_training(target: str) -> bool:
    return _WITH in target


def make(target: str) -> Made:
    """Build what a target names: a model, or one in training."""
    if not is_training(target):
        return make_model(target)
    model, _, optimizer = target.rpartition(_WITH)
    made = make_model(model)
    if not isinstance(made.model, nn.Module) or made.kwargs:
        raise InputError(f"{model}: only a module with positional arguments can be trained here")
    network = made.model.train()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # Everybody would draw other numbers.
    network.requires_grad_(True)
    with torch.no_grad():
        output = network(*made.args)
    return Made(target, Training(network, optimizer), (*made.args, goal(output)), {})


class Training(nn.Module):
    """A network, what it is to learn, and how."""

    def __init__(self, network: nn.Module, optimizer: str) -> None:
        super().__init__()
        self.network = network
        self._optimizer = optimizer

    def optimizer(self) -> torch.optim.Optimizer:
        return OPTIMIZERS[self._optimizer](self.network.parameters())

    def forward(self, *batch: Tensor) -> list[Tensor]:
        """With an optimizer that has taken no step."""
        optimizer = self.optimizer()
        answer = two_steps(lambda: eager_step(self, optimizer, batch))
        optimizer.zero_grad()
        return answer

    def loss(self, *batch: Tensor) -> Tensor:
        return loss(self.network(*batch[:-1]), batch[-1])


def two_steps(step: Callable[[], Tensor]) -> list[Tensor]:
    first = step()
    return [first, step() - first]


def eager_step(
    training: Training,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, ...],
    loss: Callable[..., Tensor] | None = None,
) -> Tensor:
    with torch.enable_grad():
        optimizer.zero_grad()
        found = (loss or training.loss)(*batch)
        found.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return found.detach()


def goal(output: Any) -> Tensor:
    """Something to learn that fits what a network gives: classes, or numbers."""
    found = _first(output)
    generator = torch.Generator().manual_seed(0)
    if found.dim() == 2:
        return torch.randint(0, found.shape[1], found.shape[:1], generator=generator)
    return torch.randn(found.shape, generator=generator)


def loss(output: Any, target: Tensor) -> Tensor:
    found = _first(output)
    if target.is_floating_point():
        return nn.functional.mse_loss(found, target)
    return nn.functional.cross_entropy(found, target)


def _first(output: Any) -> Tensor:
    while isinstance(output, tuple | list):
        output = output[0]
    if not isinstance(output, Tensor):
        raise InputError(f"a {type(output).__name__} is no output that could be trained on")
    return output


class Steps:
    """A contestant's step, and its answer: two of them from the beginning."""

    def __init__(
        self, step: Callable[..., Tensor], optimizer: torch.optim.Optimizer, batch: tuple[Any, ...]
    ) -> None:
        self._step = step
        self._optimizer = optimizer
        self.trial([tensor.clone() for tensor in batch])

    def __call__(self, tensors: list[Tensor]) -> Tensor:
        return self._step(*tensors)

    def trial(self, tensors: list[Tensor]) -> list[Tensor]:
        for state in self._optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        return two_steps(lambda: self._step(*tensors).clone())
