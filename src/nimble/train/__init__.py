"""Whole training steps: forward, loss, backward, clipping and optimizer as one plan."""

from nimble.train.program import StepOptions
from nimble.train.step import Step

__all__ = ["Step", "StepOptions"]
