"""Parameters that a step does not reach: eager leaves them and their state alone."""

import copy

import pytest
import torch
from torch import nn, optim

import nimble


class Optional(nn.Module):
    """The second layer is used where the switch is on, or for batches of more than four rows."""

    def __init__(self):
        super().__init__()
        self.never = nn.Parameter(torch.ones(3))
        self.second, self.first = nn.Linear(6, 3), nn.Linear(6, 3)
        self.on = False

    def forward(self, x):
        return self.first(x) + (self.second(x) if self.on or len(x) > 4 else 0)


OPTIMIZERS = {
    "adam": lambda ps: optim.Adam(ps, 0.05),
    "sgd": lambda ps: optim.SGD(ps, 0.05, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "rmsprop": lambda ps: optim.RMSprop(ps, 0.05),
}


def made(kind, **options):
    torch.manual_seed(0)
    mine = Optional()
    theirs = copy.deepcopy(mine)
    optimizer, reference = (OPTIMIZERS[kind](m.parameters()) for m in (mine, theirs))
    step = nimble.compile_step(
        mine, nn.MSELoss(), optimizer, (torch.randn(8, 6), torch.randn(8, 3)), **options
    )
    return mine, theirs, optimizer, reference, step


def assert_same(mine, theirs, optimizer, reference):
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        assert optimizer.state[p].keys() == reference.state[q].keys()
        if "step" in reference.state[q]:
            assert optimizer.state[p]["step"] == reference.state[q]["step"]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_layer_that_is_used_for_some_batches_only(kind):
    mine, theirs, optimizer, reference, step = made(kind, keep_grads=True)
    for rows in (4, 8, 4, 4, 8, 8):
        x, y = torch.randn(rows, 6), torch.randn(rows, 3)
        step(x, y)
        reference.zero_grad()
        nn.functional.mse_loss(theirs(x), y).backward()
        reference.step()
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
    assert_same(mine, theirs, optimizer, reference)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_layer_that_is_switched_on_later(kind):
    mine, theirs, optimizer, reference, step = made(kind)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    for number in range(6):
        mine.on = theirs.on = number >= 3
        step(x, y)
        reference.zero_grad()
        nn.functional.mse_loss(theirs(x), y).backward()
        reference.step()
    assert_same(mine, theirs, optimizer, reference)


def test_what_is_never_reached_costs_no_second_plan():
    mine, _, _, _, step = made("adam")
    x, y = torch.randn(8, 6), torch.randn(8, 3)
    for _ in range(3):
        step(x, y)
    assert [len(engine.plans) for engine in step.engines] == [1]
    assert torch.equal(mine.never, torch.ones(3))


@pytest.mark.parametrize("rows", [(8, 4), (4, 8)])
def test_a_gradient_of_one_of_two_calls_is_used(rows):
    mine, theirs, optimizer, reference, step = made("sgd", accumulate=2)
    for _ in range(3):
        reference.zero_grad()
        for count in rows:
            x, y = torch.randn(count, 6), torch.randn(count, 3)
            step(x, y)
            (nn.functional.mse_loss(theirs(x), y) / 2).backward()
        reference.step()
    assert_same(mine, theirs, optimizer, reference)


def test_another_parameter_in_the_same_place_of_a_group():
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    optimizer = optim.SGD([model[0].weight], 0.1)
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    step = nimble.compile_step(model, nn.MSELoss(), optimizer, (x, y))
    step(x, y)
    step(x, y)
    optimizer.param_groups[0]["params"][0] = model[1].weight
    first, second = (layer.weight.clone() for layer in model)
    step(x, y)
    assert torch.equal(model[0].weight, first)
    assert not torch.equal(model[1].weight, second)


class Distilled(nn.Module):
    """Follows a teacher that is no part of what the optimizer updates."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 64), nn.Linear(6, 64).requires_grad_(False)

    def forward(self, x):
        return nn.functional.mse_loss(self.student(x), self.teacher(x))


def test_weights_that_are_edited_through_data_between_steps():
    torch.manual_seed(0)
    mine = Distilled()
    theirs = copy.deepcopy(mine)
    optimizer, reference = (optim.SGD(m.student.parameters(), 1.0) for m in (mine, theirs))
    x = torch.randn(8, 6)
    step = nimble.compile_step(mine, None, optimizer, (x,))
    for _ in range(4):
        loss = step(x)
        reference.zero_grad()
        eager = theirs(x)
        eager.backward()
        reference.step()
        torch.testing.assert_close(loss, eager.detach(), rtol=1e-5, atol=1e-6)
        for model in (mine, theirs):
            pairs = zip(model.teacher.parameters(), model.student.parameters(), strict=True)
            for old, new in pairs:
                old.data.mul_(0.5).add_(new.data, alpha=0.5)
