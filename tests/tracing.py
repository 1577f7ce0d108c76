"""Captures a model for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nimble.capture import Captured, Target, capture
from nimble.capture.structure import flatten


def trace(model: Callable[..., Any], *args: torch.Tensor) -> Captured:
    tensors, structure = flatten((args, {}))
    return capture(Target.of(model), tensors, structure, "test")
