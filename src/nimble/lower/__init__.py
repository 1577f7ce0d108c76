"""Graph → Graph for one device: fused, laid out, and with a kernel for each task."""

from nimble.lower.cut import CUTS, IN_ORDER, cut
from nimble.lower.kernels import Supported, Values
from nimble.lower.recompute import LEANER, is_again, recompute
from nimble.lower.stages import lower
from nimble.lower.tiles import split
from nimble.lower.winograd import SIDES, candidates, use_winograd

__all__ = [
    "CUTS",
    "IN_ORDER",
    "LEANER",
    "SIDES",
    "Supported",
    "Values",
    "candidates",
    "cut",
    "is_again",
    "lower",
    "recompute",
    "split",
    "use_winograd",
]
