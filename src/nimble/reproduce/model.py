"""One set of constants, and what it predicts for every published measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from nimble.devices.sim.constants import Constants, Host
from nimble.devices.sim.gpus import find_gpu
from nimble.devices.sim.phases import Phase
from nimble.devices.sim.predict import host_ns, replay
from nimble.devices.sim.run import Sharing, run
from nimble.devices.sim.times import Times, times
from nimble.devices.sim.work import TILE, Kernel, Kind, Peak, Work
from nimble.reproduce.networks import Captured, in_sequence

_LOSS_CALLS = 2
"""Operators of the loss, which the paper's system leaves to PyTorch: softmax and likelihood."""


@dataclass(frozen=True, slots=True)
class Model:
    constants: Constants
    host: Host

    @staticmethod
    def of(values: Mapping[str, float], host_name: str) -> Model:
        mine = {field.name for field in fields(Constants)}
        constants = Constants(**{name: value for name, value in values.items() if name in mine})
        others = {name: value for name, value in values.items() if name not in mine}
        return Model(constants, Host(name=host_name, **others))


class Predictor:
    """Predicts for captured networks. Replays that depend on the same constants are not repeated:
    a fit asks again and again, with another host say."""

    def __init__(self, networks: Mapping[str, Captured]) -> None:
        self.networks = networks
        self._replays: dict[tuple[str, str, str, bool, Constants], float] = {}

    def eager_ns(self, name: str, gpu: str, model: Model) -> float:
        """PyTorch's own."""
        found = self.networks[name]
        taken = times(found.eager, find_gpu(gpu), model.constants)
        there = np.array(found.called) != Phase.ABSENT
        issued = np.cumsum(host_ns(found.eager, found.called, model.host))
        return in_sequence(issued, taken.alone * there)

    def single_ns(
        self, name: str, gpu: str, model: Model, mode: str = "graph", *, fused: bool = True
    ) -> float:
        """A captured graph, or launches from C++, on one stream."""
        found = self.networks[name]
        work = found.work if fused else found.eager
        alone = times(work, find_gpu(gpu), model.constants).alone
        each = model.host.launch_us * 1e3 if mode == "launch" else 0.0
        start = model.constants.graph_us * 1e3 if mode == "graph" else each
        return in_sequence(start + each * np.arange(len(alone)), alone)

    def multi_ns(
        self, name: str, gpu: str, model: Model, mode: str = "graph", *, fused: bool = True
    ) -> float:
        """The same on the streams of Nimble's assignment."""
        key = (name, gpu, mode, fused, model.constants)
        if key not in self._replays:
            found = self.networks[name]
            work = found.work if fused else found.eager
            assignment = found.assignment if fused else found.unfused
            _, ends = replay(
                times(work, find_gpu(gpu), model.constants), assignment.streams, assignment.waits,
                range(work.tasks), mode, model.constants, model.host,
            )  # fmt: skip
            self._replays[key] = max(ends)
        return self._replays[key]

    def training_ns(self, name: str, gpu: str, model: Model, *, several: bool = True) -> float:
        """A step by the paper's system: gradients are cleared, forward and backward are replayed
        with the loss between them, and the optimizer updates, while the host runs ahead."""
        found = self.networks[name]
        update = times(found.eager, find_gpu(gpu), model.constants).alone[found.updates]
        # PyTorch calls four operators for a parameter, and the first of them clears its gradient.
        clearing = len(update) // 4
        host = model.host
        calls = np.full(len(update), host.update_us * 1e3)
        loss = _LOSS_CALLS * (host.op_us + 3 * host.operand_us + host.backward_us) * 1e3
        middle = (self.multi_ns if several else self.single_ns)(name, gpu, model)
        issued = np.concatenate([calls[:clearing], [loss], calls[clearing:]]).cumsum()
        alone = np.concatenate([update[:clearing], [middle], update[clearing:]])
        issued[clearing] -= loss  # The forward starts before the loss is called.
        return in_sequence(issued, alone)

    def inference_speedup(self, name: str, model: Model) -> float:
        return self.eager_ns(name, "v100", model) / self.multi_ns(name, "v100", model)

    def training_speedup(self, name: str, model: Model) -> float:
        return self.eager_ns(name, "v100", model) / self.training_ns(name, "v100", model)


def crowd_ns(streams: int, constants: Constants) -> float:
    """So many of one convolution at once (see published.CROWD). At 7 % of the peak when alone, its
    sums cannot have been split between thread blocks."""
    pixels, channels = 8 * 8, 256
    depth = 9 * channels
    moved = 4 * (2 * pixels * channels + depth * channels)
    tiles = (pixels // TILE) * (channels // TILE)
    flops = 2.0 * pixels * channels * depth
    kernel = Kernel(Kind.MATRIX, moved, tiles, flops, depth, Peak.CONVOLUTION, square=True)
    one = Work.of_kernels([[kernel]])
    alone = times(one, find_gpu("rtx2080ti"), constants)
    many = Times(*(np.repeat(c, streams) for c in (alone.alone, alone.processors, alone.bandwidth)))
    lanes = [(lane,) for lane in range(streams)]
    sharing = Sharing(0.0, constants.node_us * 1e3, constants.interference)
    _, ends = run(many, lanes, [], range(streams), sharing)
    return max(ends)
