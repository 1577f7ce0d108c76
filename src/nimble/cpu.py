"""The CPU as a device of the pipeline: lowered to its kernels, chosen by measuring, bound."""

from __future__ import annotations

import os

import torch

from nimble.choose import choose
from nimble.clock import Clock
from nimble.devices import Constants, Prepared
from nimble.devices.cpu import ReplayPool, give_back, make_constants, supported
from nimble.devices.device import Tensors
from nimble.graph import Graph, verify
from nimble.lower import lower
from nimble.rewrite import Step
from nimble.settings import Settings


class Cpu:
    kind = "cpu"
    place = torch.device("cpu")
    runs_python = False
    """A replay runs without the GIL."""
    fuses = True

    def constants(self) -> Constants:
        return make_constants()

    def describe(self, settings: Settings) -> str:
        return "1 worker" if settings.workers == 1 else f"{settings.workers} workers"

    def prepare(
        self,
        graph: Graph,
        tensors: Tensors,
        constants: Constants,
        example: list[torch.Tensor],
        settings: Settings,
        clock: Clock,
    ) -> Prepared:
        steps: tuple[Step, ...] = ()
        with clock("lower"):
            give_back()  # What the capture needed, before more is asked for.
            if settings.native_kernels:
                graph, steps = lower(graph, supported)
                if os.environ.get("NIMBLE_VERIFY") == "1":
                    verify(graph)
        chosen = choose(graph, tensors, constants, example, settings, clock)
        give_back()
        return Prepared(
            lowered=chosen.graph,
            graph=chosen.replay.graph,
            steps=(*steps, Step.of("choose algorithms", graph, chosen.graph)),
            replay=ReplayPool(chosen.replay, settings.workers, chosen.narrow),
            constants=chosen.constants,
            choice=chosen.choice,
            measured_ns=chosen.measured_ns,
            sides=chosen.sides,
            cut=chosen.cut,
            lean=chosen.lean,
        )
