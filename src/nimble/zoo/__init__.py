"""Well-known networks in compact definitions with random weights, for tests and benchmarks."""

from nimble.zoo.batch_norm import calibrate
from nimble.zoo.inputs import random_like
from nimble.zoo.recipes import build, count, input_shapes, names, parse, untrained
from nimble.zoo.weights import enliven

__all__ = [
    "build",
    "calibrate",
    "count",
    "enliven",
    "input_shapes",
    "names",
    "parse",
    "random_like",
    "untrained",
]
