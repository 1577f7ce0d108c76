"""Optimizers without a rule of their own, whose code is captured."""

import copy

import pytest
import torch
from steps import OTHERS, assert_same, assert_same_state, batches, eager_step, pair
from torch import nn, optim

import nimble
from nimble.errors import CaptureError, InputError

IN_FLOAT32 = {"asgd", "nadam"}
"""They keep numbers in float32 whatever the parameters are, and eager computes some of these in
double precision before it rounds them."""


@pytest.mark.parametrize("kind", OTHERS)
def test_twenty_steps_follow_eager(kind):
    mine, theirs = pair()
    optimizer, reference = (OTHERS[kind](m.parameters()) for m in (mine, theirs))
    schedulers = [optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (optimizer, reference)]
    data = batches(20)
    tolerance = 1e-6 if kind in IN_FLOAT32 else 1e-9
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data:
        loss = step(x, y)
        expected = eager_step(theirs, reference, x, y)
        torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
        for scheduler in schedulers:
            scheduler.step()
    assert_same(mine, theirs, tolerance)
    assert_same_state(optimizer, reference, tolerance)
    assert len(step.engines) == 1, "a learning rate is no reason for another plan"


NUMBERS = {
    "adadelta": {"rho": 0.8, "eps": 1e-5},
    "adagrad": {"lr_decay": 0.2, "eps": 1e-6},
    "adamax": {"betas": (0.8, 0.99), "eps": 1e-6},
    "asgd": {"lambd": 1e-3, "alpha": 0.5, "t0": 2.0},
    "nadam": {"betas": (0.8, 0.99), "momentum_decay": 1e-2},
    "radam": {"betas": (0.8, 0.99), "eps": 1e-6},
    "rmsprop": {"alpha": 0.5, "momentum": 0.5, "eps": 1e-4},
    "rprop": {"etas": (0.4, 1.3), "step_sizes": (1e-5, 1.0)},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_every_number_may_change(kind):
    mine, theirs = pair()
    optimizer, reference = (OTHERS[kind](m.parameters()) for m in (mine, theirs))
    data = batches(8)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        if number == 4:
            for one in (optimizer, reference):
                one.param_groups[0].update(NUMBERS[kind])
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs, 1e-6 if kind in IN_FLOAT32 else 1e-9)
    assert len(step.engines) == 1


@pytest.mark.parametrize("kind", ["nadam", "rmsprop"])
def test_one_plan_for_a_cycle_of_rates_and_momenta(kind):
    mine, theirs = pair()
    optimizer, reference = (OTHERS[kind](m.parameters()) for m in (mine, theirs))
    cycles = [optim.lr_scheduler.OneCycleLR(o, 0.05, 12) for o in (optimizer, reference)]
    data = batches(8)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
        for cycle in cycles:
            cycle.step()
    assert_same(mine, theirs, 1e-6 if kind in IN_FLOAT32 else 1e-9)
    assert len(step.engines) == 1


def test_another_term_gets_another_plan():
    mine, theirs = pair()
    optimizer, reference = (OTHERS["rmsprop"](m.parameters()) for m in (mine, theirs))
    data = batches(6)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        if number == 3:
            for one in (optimizer, reference):
                one.param_groups[0].update(weight_decay=0.1, momentum=0)
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert len(step.engines) == 2


class Clamped:
    """Such as users write: what is done before the step of another."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.clamp_(-0.01, 0.01)
        return super().step(closure)


class ClampedAdamW(Clamped, optim.AdamW):
    pass


class ClampedSgd(Clamped, optim.SGD):
    pass


class Replaced(optim.Adamax):
    """Puts other tensors in the place of its state."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["exp_avg"] = state["exp_avg"] * 0.5


class Scaled(nn.Module):
    """With a parameter of no dimensions, the first of all."""

    def __init__(self, net):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=net.last.weight.dtype))
        self.net = net

    def forward(self, x):
        return self.net(x) * self.scale


OWN = {
    "adamw": lambda ps: ClampedAdamW(ps, 0.01),
    "sgd": lambda ps: ClampedSgd(ps, 0.1, weight_decay=0.1),
    "replaced": lambda ps: Replaced(ps, 0.01),
}


@pytest.mark.parametrize("kind", OWN)
def test_an_optimizer_of_ones_own(kind):
    mine, theirs = pair()
    optimizer, reference = (OWN[kind](m.parameters()) for m in (mine, theirs))
    data = batches(4)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)


def test_state_that_is_made_in_the_middle_of_a_step_is_told():
    model, _ = pair()
    optimizer = ClampedSgd(model.parameters(), 0.1, momentum=0.9)
    with pytest.raises(CaptureError, match="ClampedSgd makes momentum_buffer of its state in the"):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, batches(1)[0])


@pytest.mark.parametrize("kind", ["nadam", "rmsprop", "rprop", "adamax"])
def test_parameters_of_no_dimensions(kind, capfd):
    mine, theirs = (Scaled(net) for net in pair(torch.float32))
    optimizer, reference = (OTHERS[kind](m.parameters()) for m in (mine, theirs))
    for one in (optimizer, reference):
        one.param_groups[0]["weight_decay"] = 0.1
    data = batches(3, torch.float32)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0], progress=False)
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
    torch.testing.assert_close(mine.scale, theirs.scale, rtol=1e-4, atol=1e-5)
    assert not capfd.readouterr().err


def test_eager_goes_on_from_the_state():
    mine, theirs = pair()
    optimizer, reference = (OTHERS["radam"](m.parameters()) for m in (mine, theirs))
    data = batches(9)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        if 3 <= number < 6:
            eager_step(mine, optimizer, x, y)
        else:
            step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert_same_state(optimizer, reference)


def test_muon():
    """Iterates in bfloat16, and makes much of directions in which a gradient is 0 but for rounding,
    as there always is one in a cross entropy's."""
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 4, bias=False))
    theirs = copy.deepcopy(mine)
    optimizer, reference = (optim.Muon(m.parameters(), lr=0.01) for m in (mine, theirs))
    data = [(torch.randn(32, 8), torch.randn(32, 4)) for _ in range(20)]
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y, nn.functional.mse_loss)
    assert_same(mine, theirs, 3e-3)


def test_what_cannot_be_captured_is_told():
    model, _ = pair(torch.float32)
    data = batches(1, torch.float32)[0]
    with pytest.raises(CaptureError, match="Adafactor reads numbers out of tensors"):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optim.Adafactor(model.parameters()), data)
    with pytest.raises(
        InputError, match="LBFGS makes its state in the middle of a step, or needs a closure"
    ):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optim.LBFGS(model.parameters()), data)


class AllAtOnce(optim.SGD):
    def step(self, closure=None):
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.div_(norm)
        return super().step(closure)


class Counting(optim.Adamax):
    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.taken = 0

    def step(self, closure=None):
        self.taken += 1
        return super().step(closure)


@pytest.mark.parametrize("kind", [AllAtOnce, Counting])
def test_code_that_does_more_than_update_each_parameter_is_told(kind):
    model, _ = pair()
    with pytest.raises(CaptureError, match="looks at several at once, or counts"):
        nimble.compile_step(
            model, nn.CrossEntropyLoss(), kind(model.parameters(), 0.1), batches(1)[0]
        )


def test_a_step_that_was_replaced_is_told_and_a_schedulers_is_not():
    model, _ = pair()
    optimizer = optim.SGD(model.parameters(), 0.1)
    optim.lr_scheduler.StepLR(optimizer, 1)
    nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, batches(1)[0])
    old = optimizer.step
    optimizer.step = lambda closure=None: old(closure)
    with pytest.raises(InputError, match="the step of this SGD was replaced"):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, batches(1)[0])
