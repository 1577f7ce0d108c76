"""Well-known networks in compact definitions with random weights, for tests and benchmarks."""

from nimble.zoo.batch_norm import calibrate
from nimble.zoo.inputs import random_like
from nimble.zoo.recipes import build, names
from nimble.zoo.weights import vary_constants

__all__ = ["build", "calibrate", "names", "random_like", "vary_constants"]
