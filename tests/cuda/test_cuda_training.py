"""Whole training steps on the stand-in: forward, loss, backward and update in one launch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from cuda_engines import Poison
from cuda_standin import StandIn
from steps import assert_same, assert_same_state, batches, eager_step, pair
from torch import nn

import nimble
from nimble import zoo
from nimble.compare import one_thread, relative_error
from nimble.devices.cuda import Cuda
from nimble.devices.cuda.device import as_concurrent_as_can_be
from nimble.lower import is_again
from nimble.train import Step


def compiled(model, optimizer, batch, cuda, loss=nn.functional.cross_entropy, **options) -> Step:  # type: ignore[no-untyped-def]
    device = Cuda(cuda, scheduler=as_concurrent_as_can_be)
    return nimble.compile_step(
        model, loss, optimizer, batch, device=device, tune="off", progress=False, **options
    )


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_steps_are_eager_s(kind: str) -> None:
    mine, theirs = pair()
    make = {
        "sgd": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-3),
        "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-2),
    }[kind]
    ours, eager = make(mine.parameters()), make(theirs.parameters())
    cuda = StandIn()
    data = batches(4)
    step = compiled(mine, ours, data[0], cuda)
    for seed, (x, y) in enumerate(data):
        cuda.seed = seed
        ours.param_groups[0]["lr"] = eager.param_groups[0]["lr"] = 0.05 / (seed + 1)
        loss = step(x, y)
        torch.testing.assert_close(loss, eager_step(theirs, eager, x, y))
    assert cuda.replays == len(data), "one launch a step"
    assert_same(mine, theirs)
    assert_same_state(ours, eager)


def test_dropout_draws_other_numbers_at_every_replay_and_eager_s() -> None:
    mine, theirs = pair(dropout=0.5)
    ours, eager = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (mine, theirs))
    data = batches(3)
    cuda = StandIn()
    step = compiled(mine, ours, data[0], cuda)
    torch.manual_seed(7)
    losses = []
    for seed in range(3):
        cuda.seed = seed
        losses.append(step(*data[0]))
    torch.manual_seed(7)
    for loss in losses:
        torch.testing.assert_close(loss, eager_step(theirs, eager, *data[0]))
    assert_same(mine, theirs)


def test_gradients_are_added_up_over_several_calls() -> None:
    mine, theirs = pair()
    ours, eager = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (mine, theirs))
    data = batches(4)
    step = compiled(mine, ours, data[0], StandIn(), accumulate=2)
    for first, second in ((data[0], data[1]), (data[2], data[3])):
        eager.zero_grad()
        for x, y in (first, second):
            step(x, y)
            (nn.functional.cross_entropy(theirs(x), y) / 2).backward()
        eager.step()
    assert_same(mine, theirs)
    arenas = {id(plan.replay.arena) for engine in step.engines for plan in engine.plans}
    assert len(arenas) == 1


def test_a_memory_limit_is_kept_by_running_tasks_twice() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(32, 32), nn.GELU())]
    mine = nn.Sequential(*layers, nn.Linear(32, 4))
    theirs, first = copy.deepcopy(mine), copy.deepcopy(mine)
    ours, eager = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (mine, theirs))
    x, y = torch.randn(512, 32), torch.randint(0, 4, (512,))
    free = compiled(
        first, torch.optim.SGD(first.parameters(), lr=0.05), (x, y), StandIn(), streams=1
    )
    limit = int(0.7 * free.engines[0].plans[0].schedule.arena_bytes)
    step = compiled(mine, ours, (x, y), StandIn(), streams=1, memory_limit=limit)
    plan = step.engines[0].plans[0]
    assert plan.schedule.arena_bytes <= limit
    assert any(is_again(task) for task in plan.graph.tasks)
    for _ in range(2):
        torch.testing.assert_close(step(x, y), eager_step(theirs, eager, x, y))
    assert_same(mine, theirs, 1e-5)


def first(found: Any) -> Any:
    """Of several results."""
    return found[0] if isinstance(found, tuple) else found


def check(name: str, seeds: int, tasks: range) -> None:
    """Every seed begins with the same weights, and must leave the same bits."""
    torch.manual_seed(0)
    model, args = zoo.build(name)
    assert isinstance(model, nn.Module)
    model.train().requires_grad_(True)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        output = first(copy.deepcopy(model)(*args))
    classified = output.dim() == 2
    criterion = nn.functional.cross_entropy if classified else nn.functional.mse_loss

    def loss(found: Any, wanted: torch.Tensor) -> torch.Tensor:
        return criterion(first(found), wanted)

    target = torch.randint(0, output.shape[-1], output.shape[:1]) if classified else -output
    theirs = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9) for m in (model, theirs)]
    cuda = StandIn()
    with one_thread():
        step = compiled(model, optimizers[0], (*args, target), cuda, loss)
        plan = step.engines[0].plans[0]
        assert len(plan.graph.tasks) in tasks
        poison = Poison(plan, cuda)
        start = copy.deepcopy(model.state_dict())
        left: dict[str, torch.Tensor] | None = None
        for seed in range(seeds):
            model.load_state_dict(start)
            for state in optimizers[0].state.values():
                state["momentum_buffer"].zero_()
            cuda.seed = seed
            poison.fresh()
            step(*args, target)
            now = copy.deepcopy(model.state_dict())
            left = left or now
            assert all(torch.equal(now[key], left[key]) for key in now), f"seed {seed}"
        optimizers[1].zero_grad()
        loss(theirs(*args), target).backward()
        optimizers[1].step()
    assert left is not None
    for key, eager in theirs.state_dict().items():
        assert relative_error([left[key]], [eager]) < 1e-3, key
    assert plan.schedule.arena_bytes <= 1.02 * plan.schedule.arena_lower_bound


def test_a_step_of_a_network_in_several_orders() -> None:
    check("squeezenet@32x2", 3, range(200, 1600))


@pytest.mark.full
@pytest.mark.parametrize("name", ["squeezenet@32x2", "googlenet@32x2", "mobilenet_v2@32x2"])
def test_steps_in_a_hundred_orders(name: str) -> None:
    check(name, 100, range(200, 2400))


OTHERS = [
    "resnet50@32x2", "resnet101@32x2", "inception_v3@75x2", "nasnet_a_mobile@32x2",
    "amoebanet@32x2", "darts@32x2", "randwire@32x2", "efficientnet_b0@32x2", "densenet121@32x2",
    "unet@32x2", "vit_tiny@32x2", "bert_tiny@16", "lstm@8", "gru@8", "mlp", "gnn",
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_steps_of_other_networks_in_a_few_orders(name: str) -> None:
    check(name, 3, range(10, 9000))
