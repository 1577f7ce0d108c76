"""Which jobs clusters get: published mixes of sizes, durations and models."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.errors import InputError

DALLY_MODELS = (
    ("mobilenet_v3", 125.0),
    ("bert_large", 125.0),
    ("resnet50", 125.0),
    ("alexnet", 53.0),
    ("resnet18", 38.0),
    ("vgg11", 34.0),
)
"""Models by weight, in the 500 jobs that Dally was evaluated with."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs whose durations are alike."""

    sizes: tuple[tuple[int, float], ...]
    """Numbers of GPUs by weight."""
    durations_s: tuple[float, ...]
    """At the quantiles of the mix; geometric in between."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A population of jobs."""

    name: str
    source: str
    quantiles: tuple[float, ...]
    groups: tuple[Group, ...]
    models: tuple[tuple[str, float], ...] = DALLY_MODELS


DALLY = Mix(
    "dally",
    "the 500 jobs of Dally's evaluation: sizes and models exactly; durations drawn up here to have "
    "the published 10th percentile (2,667 s), median (14,369 s), mean (52,714 s), 99th percentile "
    "(322,463 s) and total (544 GPU-days), which needs large jobs to be the shorter ones",
    (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 1),
    (
        Group(((1, 270),), (790, 3530, 14380, 51140, 141140, 253580, 308000, 347530)),
        Group(
            ((2, 13), (4, 52), (8, 109), (16, 42), (32, 11), (40, 1), (48, 1), (56, 1)),
            (830, 2410, 4830, 8100, 12680, 19490, 30840, 50870),
        ),
    ),
)

PHILLY = Mix(
    "philly",
    "82,247 jobs of Microsoft's Philly cluster, September to December 2017 (Philly traces, CC-BY "
    "4.0, as cleaned by the authors of Sia): sizes, and quantiles of the durations by size; the "
    "trace names no models",
    (0, .01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .999, 1),
    (
        Group(((1, 76627),), (1, 30, 52, 62, 76, 215, 600, 1117, 1728, 2464, 3754, 8512, 19137,
                              68252, 135399, 266914, 865709, 3256045)),
        Group(((2, 1818),), (2, 5, 9, 11, 15, 17, 19, 21, 25, 33, 149, 72740, 197062, 343862,
                             523316, 808064, 1474215, 2582803)),
        Group(((4, 1870),), (3, 36, 75, 138, 405, 1696, 7468, 17410, 36288, 78660, 106284, 184435,
                             273968, 533378, 907376, 1205990, 2446301, 2750674)),
        Group(((8, 1643),), (1, 33, 125, 216, 785, 4011, 12382, 23683, 65014, 140721, 203050,
                             351982, 525618, 795161, 1060498, 2000448, 2656479, 4628226)),
        Group(((12, 7), (16, 199), (24, 7), (32, 67), (64, 6), (128, 3)),
              (1, 4, 35, 72, 345, 890, 3167, 21137, 53750, 73311, 158991, 247972, 443240, 613624,
               922629, 1274181, 1612502, 1710643)),
    ),
)  # fmt: skip

MIXES = {mix.name: mix for mix in (DALLY, PHILLY)}

HOURLY = (1.27, 0.98, 1.12, 1.10, 0.70, 1.15, 1.67, 2.09, 1.11, 1.01, 1.02, 0.87,
          0.75, 0.70, 0.64, 0.65, 0.88, 0.67, 0.80, 0.73, 1.02, 0.92, 1.13, 1.01)  # fmt: skip
"""Submissions in Philly by hour of the recorded clock, relative to their mean."""


def find_mix(name: str) -> Mix:
    """The mix of that name."""
    if name not in MIXES:
        raise InputError(f"mix {name!r}: expected one of {', '.join(MIXES)}")
    return MIXES[name]
