"""A call's arguments on their way into a replay, and back to the caller."""

from __future__ import annotations

import re
from typing import Any

import torch

from nimble.capture import Parameters
from nimble.capture.structure import Structure, flatten, plain_call, refuse_mutable
from nimble.graph import Graph
from nimble.signature import check_tensor


def flatten_call(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], Structure]:
    """`flatten((args, kwargs))`, without the walk where all arguments are different tensors."""
    count = len(args)
    plain = not kwargs and all(type(a) is torch.Tensor for a in args)
    if not plain or len({id(a) for a in args}) < count:
        return flatten((args, kwargs))
    return list(args), plain_call(count)


def checked(
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters, place: torch.device
) -> tuple[list[torch.Tensor], Structure, list[str]]:
    """The tensors of a call, how they nest, and what they are called. InputError for what no plan
    can take."""
    tensors, structure = flatten_call(*parameters.bind(args, kwargs))
    refuse_mutable(structure)
    names = parameters.names_of(structure, len(tensors))
    for tensor, name in zip(tensors, names, strict=True):
        check_tensor(tensor, name, place)
    return tensors, structure, names


def mismatch(names: list[str], index: int, why: str) -> str:
    """What is wrong with an argument, and what to do."""
    why = re.sub(r"\binput (\d+)\b", lambda found: names[int(found[1])], why)
    todo = "; pass a copy of one of them (.clone())" if "shares memory" in why else ""
    todo = "; pass a plain, dense one (.clone())" if "no ordinary" in why else todo
    todo = "; pass a copy of it (.clone())" if "inference tensor" in why else todo
    return f"{names[index]}: {why}{todo}"


def written_back(
    graph: Graph,
    given: list[torch.Tensor],
    tensors: list[torch.Tensor],
    results: list[torch.Tensor],
) -> list[torch.Tensor]:
    """The results. Of inputs that were conjugated or negated views a copy was bound: what the model
    wrote there is copied back, and they themselves are returned in its place."""
    copied = [i for i, tensor in enumerate(tensors) if tensor is not given[i]]
    if not copied:
        return results
    written = {graph.homes[value.id] for value in graph.values if value.overwrites is not None}
    for i in copied:
        if graph.inputs[i] in written:
            given[i].copy_(tensors[i])
    originals = {id(tensors[i]): given[i] for i in copied}
    return [originals.get(id(result), result) for result in results]
