"""Graph → Graph for one device: fused, laid out, and with a kernel for each task."""

from nimble.lower.kernels import Supported, Values
from nimble.lower.stages import lower
from nimble.lower.tiles import split

__all__ = ["Supported", "Values", "lower", "split"]
