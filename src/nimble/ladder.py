"""Sizes declared ahead: what `shapes=` means, and example inputs of those sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch

from nimble.errors import InputError

Shapes = Sequence[int] | Mapping[str | int, Sequence[int]]
_DIMENSIONS = {"batch": 0, "sequence": 1}


def rungs(shapes: Shapes) -> list[dict[int, int]]:
    """`shapes=` as a list of {dimension: size}, smallest first.

    A list of ints is a ladder of batch sizes; a mapping names the dimension ("batch" is 0,
    "sequence" is 1, or any number), and several dimensions multiply out.
    """
    if not isinstance(shapes, Mapping | list | tuple | range):
        raise InputError(
            f"shapes={shapes!r}: expected a list of batch sizes, or a dict of dimension: sizes"
        )
    named: Mapping[str | int, Sequence[int]] = (
        shapes if isinstance(shapes, Mapping) else {"batch": shapes}
    )
    sizes: dict[int, Sequence[int]] = {}
    for key, values in named.items():
        dimension = _DIMENSIONS.get(key, -1) if isinstance(key, str) else key
        if dimension < 0:
            raise InputError(
                f"shapes= names dimension {key!r}; expected 'batch', 'sequence' or a number"
            )
        if (
            not isinstance(values, Sequence)
            or not values
            or any(type(n) is not int or n < 1 for n in values)
        ):
            raise InputError(f"shapes= gives {key!r} the sizes {values!r}; expected positive ints")
        sizes[dimension] = sorted(set(values))
    return [
        dict(zip(sizes, combination, strict=True))
        for combination in itertools.product(*sizes.values())
    ]


def resized(tensors: list[torch.Tensor], rung: Mapping[int, int]) -> list[torch.Tensor]:
    """Example inputs of another size: tensors that have the leading tensor's size in a dimension
    get the rung's size there, by repeating what they hold."""
    if not tensors:
        raise InputError("shapes= needs a model with tensor inputs")
    for dimension, size in rung.items():
        leading = next((t for t in tensors if t.dim() > dimension), None)
        if leading is None:
            raise InputError(f"shapes= names dimension {dimension}, which no input has")
        old = leading.shape[dimension]
        if old == 0:
            raise InputError(f"shapes= cannot resize dimension {dimension}: the example is empty")
        index = torch.arange(size, device=leading.device) % old
        tensors = [
            t.index_select(dimension, index)
            if t.dim() > dimension and t.shape[dimension] == old
            else t
            for t in tensors
        ]
    return tensors


def pad_rows(tensor: torch.Tensor, to: int) -> torch.Tensor:
    """Repeat the first row of a tensor (zeros, where there is none) until it has `to`, strides
    kept."""
    rows = tensor.shape[0]
    wide = torch.empty_strided(
        (to, *tensor.shape[1:]), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    wide[:rows] = tensor
    wide[rows:] = tensor[:1] if rows else 0
    return wide
