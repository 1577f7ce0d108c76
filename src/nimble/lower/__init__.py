"""Graph → Graph for one device: fused, laid out, and with a kernel for each task."""

from nimble.lower.cut import CUTS, cut
from nimble.lower.kernels import Supported, Values
from nimble.lower.stages import lower
from nimble.lower.tiles import split
from nimble.lower.winograd import SIDES, candidates, use_winograd

__all__ = [
    "CUTS",
    "SIDES",
    "Supported",
    "Values",
    "candidates",
    "cut",
    "lower",
    "split",
    "use_winograd",
]
