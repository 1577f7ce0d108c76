"""Optimizers without a rule of their own, whose code is captured."""

import pytest
import torch
from steps import assert_same, assert_same_state, batches, eager_step, pair
from torch import nn, optim

import nimble
from nimble.errors import CaptureError, InputError

OTHERS = {
    "adadelta": lambda ps: optim.Adadelta(ps, lr=0.5),
    "adagrad": lambda ps: optim.Adagrad(ps, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1),
    "adamax": lambda ps: optim.Adamax(ps, lr=0.02, maximize=True),
    "asgd": lambda ps: optim.ASGD(ps, lr=0.05, t0=5),
    "nadam": lambda ps: optim.NAdam(ps, decoupled_weight_decay=True, weight_decay=0.1),
    "radam": lambda ps: optim.RAdam(ps, lr=0.02),
    "rmsprop": lambda ps: optim.RMSprop(ps, lr=0.01, momentum=0.9, centered=True),
    "rprop": lambda ps: optim.Rprop(ps, lr=0.01),
}
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


def test_another_number_gets_another_plan():
    mine, theirs = pair()
    optimizer, reference = (OTHERS["rmsprop"](m.parameters()) for m in (mine, theirs))
    data = batches(6)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        if number == 3:
            for one in (optimizer, reference):
                one.param_groups[0]["alpha"] = 0.5
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert len(step.engines) == 2


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


def test_what_cannot_be_captured_is_told():
    model, _ = pair(torch.float32)
    data = batches(1, torch.float32)[0]
    with pytest.raises(CaptureError, match="Adafactor reads numbers out of tensors"):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optim.Adafactor(model.parameters()), data)
    with pytest.raises(InputError, match="LBFGS does not update"):
        nimble.compile_step(model, nn.CrossEntropyLoss(), optim.LBFGS(model.parameters()), data)
