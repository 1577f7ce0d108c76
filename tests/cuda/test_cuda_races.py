"""A wait that is missing is found: by the proof always, and by the stand-in in some order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from cuda_engines import Poison, on_standin
from torch import nn

from nimble import zoo
from nimble.compare import one_thread
from nimble.devices.cuda.memory import Arena
from nimble.devices.cuda.parts import launch_order
from nimble.devices.cuda.replay import CudaReplay
from nimble.errors import ProofError
from nimble.plan import Plan
from nimble.schedule import Schedule, prove


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.stack([c(x).relu() for c in self.convolutions]).sum(0) * 0.1
        return x


def without(built: Schedule, place: int) -> Schedule:
    return replace(built, waits=(*built.waits[:place], *built.waits[place + 1 :]))


def unproven(plan: Plan, built: Schedule, cuda: object, x: torch.Tensor) -> CudaReplay:
    """A replay of a schedule that the proof would refuse."""
    built.__dict__["_proven"] = True
    held = {**plan.tensors, **plan.constants}
    return CudaReplay(cuda, built, {}, launch_order(built), held, Arena(cuda), [x])  # type: ignore[arg-type]


def test_some_order_shows_every_wait_that_is_missing() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 5, 5)
    with one_thread():
        engine, cuda = on_standin(Branches(), (x,))
        plan = engine.plans[0]
        right = engine(x)
        assert len(plan.schedule.waits) > 5
        for place in range(len(plan.schedule.waits)):
            built = without(plan.schedule, place)
            replay = unproven(plan, built, cuda, x)
            poison = Poison(replace_replay(plan, replay), cuda)
            wrong = 0
            for cuda.seed in range(60):
                poison.fresh()
                wrong += not torch.equal(replay([x])[0], right)
                if wrong:
                    break
            assert wrong, f"no order shows that {plan.schedule.waits[place]} is missing"


def replace_replay(plan: Plan, replay: CudaReplay) -> Plan:
    return replace(plan, replay=replay)


def refused(built: Schedule, places: Sequence[int]) -> None:
    for place in places:
        with pytest.raises(ProofError):
            prove(without(built, place))


def schedule_of(name: str) -> Schedule:
    model, args = zoo.build(name)
    return on_standin(model, args)[0].plans[0].schedule


def test_the_proof_refuses_every_wait_that_is_missing() -> None:
    built = schedule_of("squeezenet@32")
    assert built.waits
    refused(built, range(len(built.waits)))


@pytest.mark.full
@pytest.mark.parametrize("name", ["googlenet@32", "inception_v3@75", "nasnet_a_mobile@32"])
def test_the_proof_refuses_every_wait_that_is_missing_in_large_networks(name: str) -> None:
    built = schedule_of(name)
    refused(built, range(len(built.waits)))
