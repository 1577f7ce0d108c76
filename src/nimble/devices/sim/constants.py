"""The few numbers of the model that no datasheet has, and the hosts that launch kernels."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Constants:
    """How far real kernels stay below the datasheet, the same for every GPU and network.

    docs/gpu.md says where each is from; those fitted are fitted to published measurements.
    """

    floor_us: float
    """What even the smallest kernel takes, from the end of the one before it in its stream."""
    matrix: float
    """Of the peak: dense convolutions and matrix products that fill the GPU."""
    grouped: float
    """Of the peak: convolutions by channel, which have no matrix product inside."""
    memory: float
    """Of the bandwidth: everything that only moves data."""
    cache: float
    """How many times as fast data moves that fits in the level 2 cache."""
    latency: float
    """What one tile of a matrix product takes alone on a multiprocessor, against its share of a
    full one. More than 1: few tiles leave the arithmetic units waiting."""
    slots: float
    """Tiles of a matrix product that a multiprocessor holds at once."""
    winograd: float
    """Of the arithmetic: what is left of a 3 x 3 convolution by Winograd's algorithm."""
    interference: float
    """How much slower kernels run beside others that have all the rest of the GPU."""
    wait_us: float
    """From the end of a kernel to the start of one on another stream that waits for it, beyond what
    it would be on the same stream."""
    node_us: float
    """Between the starts of any two kernels of one graph, and from one's end to the next."""
    graph_us: float
    """Launching a graph."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the processor and Python need for eager PyTorch's calls, in microseconds each."""

    name: str
    op_us: float
    operand_us: float
    """More for each tensor that an operator takes or gives."""
    backward_us: float
    """An operator called by autograd on the way back."""
    update_us: float
    """An operator of the optimizer's loop over parameters."""
    launch_us: float
    """A kernel launched from C++, without a framework."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far the model was off on published speed-ups of networks that it was not fitted to."""

    cells: int
    median: float
    worst: float


@cache
def _fitted() -> dict[str, dict[str, float | str | int]]:
    data = tomllib.loads((files(__package__) / "fitted.toml").read_text())
    expected = {field.name for field in fields(Constants)}
    assert data["constants"].keys() == expected
    return data


def default_constants() -> Constants:
    return Constants(**_fitted()["constants"])  # type: ignore[arg-type]


def published_error() -> Error:
    return Error(**_fitted()["error"])  # type: ignore[arg-type]


def host_names() -> list[str]:
    return [name.removeprefix("host-") for name in _fitted() if name.startswith("host-")]


def find_host(name: str) -> Host:
    """`paper`: the machine of Nimble's paper; `recent`: one of today."""
    if name not in host_names():
        raise InputError(f"no host {name!r}; expected one of {', '.join(host_names())}")
    return Host(**_fitted()[f"host-{name}"])  # type: ignore[arg-type]
