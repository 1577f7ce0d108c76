"""The time that no program can go below here: arithmetic and bytes over what the machine can do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from nimble.bench.job import environment
from nimble.bench.training import Training
from nimble.bench.verify import Exam
from nimble.capture.structure import flatten
from nimble.compare import call
from nimble.errors import NimbleError
from nimble.targets import Made

Shape = tuple[int, ...]
_PATIENCE = 300


def _attention(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


_ALSO = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}
"""What PyTorch does not count by itself."""


@dataclass(frozen=True)
class Peaks:
    """The machine at its best, with this many threads."""

    threads: int
    flops: float
    bandwidth: Mapping[int, float]
    """Bytes a second, by the size of the memory that is read again and again."""

    @staticmethod
    def measure(threads: int, folder: Path) -> Peaks:
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(Path(__file__).with_name("peaks.py"))],
                env=environment(threads, folder),
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C ends it through us, without a word of its own.
                check=True,
                timeout=_PATIENCE,
            )
        except subprocess.TimeoutExpired as error:
            raise NimbleError(
                f"finding out what this machine can do took more than {_PATIENCE} seconds: "
                "something else keeps its cores busy; bench again when it has ended"
            ) from error
        found = json.loads(done.stdout)
        return Peaks(threads, found["flops"], {int(k): v for k, v in found["bandwidth"].items()})

    def bandwidth_for(self, size: int) -> float:
        """Of the largest memory measured that is no larger, so that the limit is not too high."""
        fitting = [measured for measured in self.bandwidth if measured <= size]
        return self.bandwidth[max(fitting, default=min(self.bandwidth))]


@dataclass(frozen=True, slots=True)
class Work:
    """What a network has to do at least, whoever runs it."""

    flops: int
    """Two for each multiply-add of its matrix products, convolutions and attention."""
    bytes: int
    """Parameters, buffers, inputs and results, each once."""

    @staticmethod
    def of(made: Made, exam: Exam) -> Work:
        structure = flatten((made.args, made.kwargs))[1]
        counter = FlopCounterMode(display=False, custom_mapping=_ALSO)
        state = _state(made)
        # The backward of a product is two as large; PyTorch counts those of groups wrongly.
        times, model = (3, made.model.loss) if isinstance(made.model, Training) else (1, made.model)
        with counter:
            call(model, exam.inputs[0], structure)
        for tensor, before in state.items():
            if not torch.equal(tensor, before):
                tensor.copy_(before)
        tensors = {*state, *exam.inputs[0], *exam.references[0].eager}
        return Work(times * counter.get_total_flops(), sum(tensor.nbytes for tensor in tensors))


def _state(made: Made) -> dict[torch.Tensor, torch.Tensor]:
    if not isinstance(made.model, nn.Module):
        return {}
    return {tensor: tensor.clone() for tensor in made.model.state_dict().values()}
