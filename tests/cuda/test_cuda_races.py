"""A wait that is missing is found: by the proof always, and by the stand-in in some order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from cuda_engines import Poison, on_standin
from cuda_standin import StandIn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nimble import zoo
from nimble.compare import one_thread
from nimble.devices.cuda.memory import Arena
from nimble.devices.cuda.parts import launch_order
from nimble.devices.cuda.replay import CudaReplay
from nimble.errors import ProofError
from nimble.plan import Plan
from nimble.schedule import Schedule, prove
from nimble.schedule.clocks import Clocks
from nimble.schedule.lifetimes import homes

OPERATORS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a * b.tanh(),
    lambda a, b: (a @ b).sigmoid(),
    lambda a, b: torch.cat([a, b])[2:6],
    lambda a, b: a.t() - b.relu(),
    lambda a, b: a.softmax(-1) + b.mean(0),
    lambda a, b: torch.where(a > b, a, b.flip(0)),
]


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


def unproven(plan: Plan, built: Schedule, cuda: StandIn, x: torch.Tensor) -> CudaReplay:
    """A replay of a schedule that the proof would refuse."""
    built.__dict__["_proven"] = True
    held = {**plan.tensors, **plan.constants}
    return CudaReplay(cuda, built, {}, launch_order(built), held, Arena(cuda), [x])


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
            missing = plan.schedule.waits[place]
            assert shows_wrong(plan, built, cuda, x, right), f"no order shows that {missing} is"


@pytest.mark.parametrize("name", ["squeezenet@32", "bert_tiny@16", "gnn"])
def test_what_is_captured_has_the_order_of_the_schedule_and_no_more(name: str) -> None:
    model, args = zoo.build(name)
    plan = on_standin(model, args)[0].plans[0]
    (graph,) = plan.replay._static.launch._graphs
    number = {task.name: t for t, task in enumerate(plan.graph.tasks)}
    earlier: list[set[int]] = []
    captured: set[tuple[int, int]] = set()
    for record in graph.records:
        mine = number[record.task]
        known = set().union(*(earlier[n] | {number[graph.records[n].task]} for n in record.before))
        earlier.append(known)
        captured |= {(before, mine) for before in known - {mine}}
    assert captured == ordered(plan.schedule)


def ordered(built: Schedule) -> set[tuple[int, int]]:
    """Pairs of which the first happens before the second, by streams and waits."""
    every = np.arange(len(built.graph.tasks))
    before = Clocks(built.graph, built.streams, built.waits).before(every, every)
    return {(a, b) for a, b in np.argwhere(before).tolist() if a != b}


def moved(built: Schedule, home: int, offset: int) -> Schedule:
    graph = built.graph
    offsets = [
        old if old is None or graph.homes[v] != home else offset + graph[v].offset
        for v, old in enumerate(built.offsets)
    ]
    return replace(built, offsets=tuple(offsets))


def test_values_in_the_wrong_place_show() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 5, 5)
    with one_thread():
        engine, cuda = on_standin(Branches(), (x,))
        plan = engine.plans[0]
        right = engine(x)
        needed = homes(plan.schedule.graph)
        refused = 0
        for one, other in zip(needed, needed[1:] + needed[:1], strict=True):
            at = plan.schedule.offsets[other.id]
            assert at is not None
            built = replace(
                moved(plan.schedule, one.id, at), arena_bytes=plan.schedule.arena_bytes + one.size
            )
            try:
                prove(built)
            except ProofError:
                refused += 1
                assert shows_wrong(plan, built, cuda, x, right), f"{one} lies where {other} does"
        assert refused > 5


def shows_wrong(
    plan: Plan, built: Schedule, cuda: StandIn, x: torch.Tensor, right: torch.Tensor
) -> bool:
    """Whether some order gives other numbers; or PyTorch itself sees memory read and written."""
    try:
        replay = unproven(plan, built, cuda, x)
        poison = Poison(replace(plan, replay=replay), cuda)
        for cuda.seed in range(60):
            poison.fresh()
            if not torch.equal(replay([x])[0], right):
                return True
    except RuntimeError as error:
        return "refer to a single memory location" in str(error)
    return False


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_give_eager_s_bits_in_every_order_tried(seed: int) -> None:
    draw = random.Random(seed)
    steps = [(draw.choice(OPERATORS), draw.random(), draw.random()) for _ in range(14)]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = [x, x + 1]
        for op, a, b in steps:
            made.append(op(made[int(a * len(made))], made[int(b * len(made))]))
        return made[-1], made[-2] * 2

    x = torch.randn(4, 4)
    with one_thread():
        engine, cuda = on_standin(program, (x,))
        poison = Poison(engine.plans[0], cuda)
        for cuda.seed in range(6):
            poison.fresh()
            torch.testing.assert_close(engine(x), program(x), rtol=0, atol=0, equal_nan=True)


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
