"""Hooks on gradients and optimizers: called, or refused."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.modules.module as everywhere
import torch.optim.optimizer as optimizers
from torch import nn
from torch.utils.hooks import RemovableHandle

from nimble.errors import InputError


class Hooks:
    """Those that a step of eager would call."""

    def __init__(self, modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer) -> None:
        self._modules = modules
        self._optimizer = optimizer
        self._registered = -1
        """How many hooks of any kind PyTorch had counted at the last look."""

    def check(self) -> None:
        """Refuse hooks that would see gradients on their way."""
        if self._registered == RemovableHandle.next_id:
            return
        if self._optimizer._optimizer_step_pre_hooks or optimizers._global_optimizer_pre_hooks:
            raise InputError(f"the optimizer has a hook that runs before its step{REFUSED}")
        if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
            raise InputError(f"all modules have a hook on gradients{REFUSED}")
        for root in self._modules.values():
            for name, module in root.named_modules():
                if module._backward_hooks or module._backward_pre_hooks:
                    raise InputError(f"module {name!r} has a hook on gradients{REFUSED}")
            for name, parameter in root.named_parameters():
                if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                    raise InputError(f"{name!r} has a hook on its gradient{REFUSED}")
        self._registered = RemovableHandle.next_id

    def call(self) -> None:
        """Those that run after the optimizer's step."""
        mine = self._optimizer._optimizer_step_post_hooks
        for hook in (*mine.values(), *optimizers._global_optimizer_post_hooks.values()):
            hook(self._optimizer, (), {})


REFUSED = (
    ", and a replay does not stop to call it; remove it, or keep your own loop around "
    'torch.compile(model, backend="nimble")'
)
