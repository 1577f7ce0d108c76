"""PyTorch → Graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from nimble.capture.operators import CPU, Place
from nimble.capture.parameters import Parameters
from nimble.capture.structure import Structure
from nimble.capture.target import Target
from nimble.errors import CaptureError
from nimble.graph import Graph, Role

__all__ = ["CPU", "Captured", "Parameters", "Place", "Target", "capture", "shared_state"]


@dataclass(frozen=True)
class Captured:
    """A model as a graph, the tensors that it owns, and the structure of its result."""

    graph: Graph
    tensors: Mapping[str, torch.Tensor]
    """The memory of every root of role parameter or state, by name."""
    output: Structure


def capture(
    target: Target,
    tensors: list[torch.Tensor],
    structure: Structure,
    name: str,
    place: Place = CPU,
) -> Captured:
    """Capture `target` called on these tensors, nested as `structure` says in (args, kwargs), as it
    runs on the device at `place`."""
    # These import SymPy: most of a second and 30 MB that an engine from a file is spared.
    from nimble.capture.build import Root, build
    from nimble.capture.layout import eager_strides
    from nimble.capture.trace import trace

    taken = target.named_tensors()
    inference = next((n for n, tensor in taken.items() if tensor.is_inference()), None)
    if inference is not None:
        raise CaptureError(
            f"{inference!r} was made under torch.inference_mode(), so PyTorch does not count its "
            "edits, and an engine could not notice them; build the model outside of it, or under "
            "torch.no_grad()"
        )
    called: list[str] = []
    for given in target.parameters().names_of(structure, len(tensors)):
        free = given
        while free in taken or free in called:
            free = f"input {free}"
        called.append(free)
    traced = trace(target, tensors, structure, called)
    roots = [Root(n, Role.PARAMETER) for n in traced.names]
    roots += [Root(n, Role.INPUT) for n in called]
    everything = [*traced.tensors.values(), *tensors]
    graph, held = build(
        name,
        traced.module,
        roots,
        strides=eager_strides(traced.module, everything, traced.outputs, place),
        assigned=traced.assigned,
        updates=traced.updates,
        place=place,
        known={id(tensor): n for n, tensor in traced.tensors.items()},
    )
    owned = {**traced.tensors, **held}
    _refuse_shared_state(graph, owned)
    return Captured(graph, owned, traced.output)


def _refuse_shared_state(graph: Graph, tensors: Mapping[str, torch.Tensor]) -> None:
    shared = shared_state(graph, tensors)
    if shared is not None:
        raise CaptureError(
            f"the model updates {shared[0]!r} in place, which shares memory with {shared[1]!r}; "
            "give each its own memory (.clone())"
        )


def shared_state(graph: Graph, tensors: Mapping[str, torch.Tensor]) -> tuple[str, str] | None:
    """Two names for the same bytes are fine to read, but not when one of them is written: that one,
    and the other."""
    roots = [r for r in graph.roots(Role.PARAMETER, Role.STATE) if r.name in tensors and r.span]
    spans = sorted(
        (tensors[r.name].data_ptr(), r.span, r.role is Role.STATE, r.name) for r in roots
    )
    reach: dict[bool, tuple[int, str]] = {False: (0, ""), True: (0, "")}
    """How far those before reach, that are read and that are written."""
    for start, span, written, name in spans:
        for is_written, (stop, other) in reach.items():
            if start < stop and (written or is_written):
                return (name, other) if written else (other, name)
        reach[written] = max(reach[written], (start + span, name))
    return None
