"""Graph → Graph for one device: fused, laid out, and with a kernel for each task."""

from nimble.lower.cut import CUTS, IN_ORDER, cut
from nimble.lower.kernels import Supported, Values
from nimble.lower.recompute import is_again
from nimble.lower.stages import lower
from nimble.lower.tiles import split
from nimble.lower.winograd import SIDES, candidates, use_winograd
from nimble.lower.within import within

__all__ = [
    "CUTS",
    "IN_ORDER",
    "SIDES",
    "Supported",
    "Values",
    "candidates",
    "cut",
    "is_again",
    "lower",
    "split",
    "use_winograd",
    "within",
]
