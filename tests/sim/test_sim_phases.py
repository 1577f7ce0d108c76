"""A training step as eager PyTorch calls it: forward, backward, update, and what it never calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nimble.devices.sim import find_host, predict_eager
from nimble.devices.sim.phases import Phase, phases
from nimble.foresee import Subject, capture_step


@pytest.fixture(scope="module")
def step() -> Subject:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = (torch.randn(4, 8), torch.zeros(4, dtype=torch.long))
    return capture_step(model, nn.functional.cross_entropy, optimizer, batch, "a step")


def test_all_that_follows_the_loss_is_the_way_back_until_the_optimizer_s_numbers_come_in(step):
    found = phases(step.eager, step.numbers)
    turn = next(t for t, task in enumerate(step.eager.tasks) if "_backward" in task.op)
    assert not {Phase.BACKWARD, Phase.UPDATE} & set(found[:turn])
    assert Phase.FORWARD not in found[turn:]
    products = [t for t, task in enumerate(step.eager.tasks) if task.op.startswith("aten.mm.")]
    assert products, "gradients of weights, whose operators are not named after the way back"
    assert {found[t] for t in products} == {Phase.BACKWARD}
    parameters = 6
    assert found.count(Phase.UPDATE) >= 2 * parameters


def test_a_call_has_no_way_back(step):
    assert set(phases(step.eager)) <= {Phase.FORWARD, Phase.ABSENT}


def test_what_eager_never_calls_takes_no_time(step):
    found = phases(step.eager, step.numbers)
    eager = predict_eager(step.eager, "v100", numbers=step.numbers)
    absent = [t for t, phase in enumerate(found) if phase is Phase.ABSENT]
    assert absent
    assert all(eager.ends[t] == eager.starts[t] for t in absent)
    assert all(eager.ends[t] > eager.starts[t] for t, p in enumerate(found) if p is Phase.BACKWARD)
    host = find_host("recent")
    updates = found.count(Phase.UPDATE) * host.update_us * 1e3
    assert eager.ns > updates + found.count(Phase.BACKWARD) * host.backward_us * 1e3
