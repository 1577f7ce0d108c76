"""One signature's way through the pipeline: capture, rewrite, lower, schedule, prove, bind."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nimble.capture import Captured, Place, Target, capture
from nimble.capture.structure import Structure
from nimble.capture.tensors import copy_exactly
from nimble.clock import Clock, Report
from nimble.collector import collected_seldom
from nimble.devices import Constants, Device, Replayed
from nimble.graph import Graph, verify
from nimble.rewrite import Step, rewrite
from nimble.schedule import Schedule
from nimble.settings import Settings
from nimble.signature import Signature


@dataclass
class Plan:
    """Everything decided for one signature, bound and ready to replay."""

    signature: Signature
    names: list[str]
    """What the input tensors are called."""
    output: Structure
    tensors: Mapping[str, torch.Tensor]
    """The memory of parameters and state, by name."""
    captured_tasks: int
    source: Graph
    """Rewritten, not yet lowered: the same on any machine."""
    lowered: Graph
    """For this device, not yet cut."""
    sides: dict[str, int]
    """Convolutions by Winograd's algorithm: task → side of a tile."""
    cut: str
    """How the lowered graph was cut: one of lower.CUTS."""
    lean: int
    """Bytes that may be alive at once, where tasks run twice for that; 0: none does."""
    graph: Graph
    steps: tuple[Step, ...]
    replay: Replayed
    constants: dict[str, torch.Tensor]
    example: list[torch.Tensor]
    reason: str
    """Why this plan was needed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each stage took."""
    measured_ns: int | None = None
    choice: str = ""
    """Why this many streams are used."""
    fingerprint: tuple[Any, ...] = ()
    """What else the capture depended on: modules, their names for tensors, attributes, hooks."""
    elsewhere: Mapping[str, Callable[[], torch.Tensor]] = field(default_factory=dict)
    """Parameters that constants were computed of, and that nobody holds: how to have them again."""
    paddable: bool = False
    """Whether its rows are proven independent, so that a smaller batch might be padded to it."""
    padded: dict[int, str | None] = field(default_factory=dict)
    """Smaller numbers of rows → why they must not be padded to it; None: proven that they may."""
    why_gone: str = ""
    """Why an engine does not hold it any more."""

    def __post_init__(self) -> None:
        # The gate knows the modes of the CPU.
        self.gate = self.signature.gate() if self.replay.native else None

    @property
    def schedule(self) -> Schedule:
        return self.replay.schedule


@collected_seldom()
def make_plan(
    target: Target,
    signature: Signature,
    tensors: list[torch.Tensor],
    settings: Settings,
    device: Device,
    constants: Constants,
    *,
    name: str,
    reason: str,
    report: Report = lambda stage: None,
) -> Plan:
    """Take the model, called on `tensors`, all the way to a plan."""
    clock = Clock(report)
    with clock("capture"):
        place = Place(device.place, device.runs_python)
        captured = capture(target, tensors, signature.structure, name, place)
        fingerprint = target.fingerprint()  # another thread may change the model from here on
        gc.collect()  # PyTorch's tracer leaves cycles behind, ten megabytes of them.
    with clock("rewrite"):
        source, steps = rewrite(captured.graph)
        _checked(source)
    example = [copy_exactly(tensor) for tensor in tensors]
    made = device.prepare(source, captured.tensors, constants, example, settings, clock)
    return Plan(
        signature=signature,
        names=[source[v].name for v in source.inputs],
        output=captured.output,
        tensors=_used(captured, made.lowered),
        captured_tasks=len(captured.graph.tasks),
        source=source,
        lowered=made.lowered,
        sides=made.sides,
        cut=made.cut,
        lean=made.lean,
        graph=made.graph,
        steps=(*steps, *made.steps),
        replay=made.replay,
        constants=made.constants,
        example=example,
        reason=reason,
        seconds=clock.seconds,
        measured_ns=made.measured_ns,
        choice=made.choice,
        fingerprint=fingerprint,
    )


def _checked(graph: Graph) -> Graph:
    """The graph, verified if NIMBLE_VERIFY=1 asks for it between stages."""
    return verify(graph) if os.environ.get("NIMBLE_VERIFY") == "1" else graph


def _used(captured: Captured, graph: Graph) -> dict[str, torch.Tensor]:
    graphs = [graph] if graph.prologue is None else [graph, graph.prologue]
    names = {root.name for g in graphs for root in g.roots()}
    return {name: tensor for name, tensor in captured.tensors.items() if name in names}
