"""What is otherwise while a step is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.utils.checkpoint as checkpoints

from nimble.errors import CaptureError
from nimble.train.hooks import REFUSED


@contextmanager
def as_a_plan_takes_it() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_opened_lstms())
        stack.enter_context(patch.object(torch.Tensor, "register_hook", _register_hook))
        # What is kept for the backward is the schedule's to decide: memory_limit=.
        stack.enter_context(
            patch.object(checkpoints, "_checkpoint_without_reentrant_generator", _kept_as_it_is)
        )
        stack.enter_context(patch.object(checkpoints.CheckpointFunction, "apply", _call))
        yield


@contextmanager
def _opened_lstms() -> Iterator[None]:
    """An LSTM as its products: what its layers in one piece hand to their backward is lost in a
    trace."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


_register: Callable[..., Any] = torch.Tensor.register_hook


def _register_hook(tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    """Hooks on tensors that a model makes are part of the trace, as far as they return another
    gradient. Those that only look at it are refused."""

    def called(gradient: torch.Tensor) -> Any:
        made = hook(gradient)
        if made is None:
            raise CaptureError(
                f"the model registers a hook on a tensor that returns no gradient{REFUSED}"
            )
        return made

    return _register(tensor, called)


def _kept_as_it_is(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _call(function: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
    return function(*args)
