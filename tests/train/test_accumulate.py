"""Gradients of several calls to one update."""

import pytest
import torch
from steps import OPTIMIZERS, assert_same, assert_same_state, batches, pair
from torch import nn

import nimble


def follow(step, mine, theirs, reference, data, calls):
    """Eager's loop beside the step, `calls` of it to an update."""
    for number, (x, y) in enumerate(data):
        loss = step(x, y)
        expected = nn.functional.cross_entropy(theirs(x), y)
        (expected / calls).backward()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-9, atol=1e-9)
        if number % calls == calls - 1:
            reference.step()
            reference.zero_grad()
        assert_same(mine, theirs)


def test_gradients_add_up_over_calls():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["adam"](m.parameters()) for m in (mine, theirs))
    data = batches(7)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0], accumulate=3)
    follow(step, mine, theirs, reference, data, 3)
    assert_same_state(optimizer, reference)


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.1, "keep_grads": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_epoch_that_ends_halfway_is_flushed(dtype, options):
    mine, theirs = pair(dtype)
    optimizer, reference = (OPTIMIZERS["adam"](m.parameters()) for m in (mine, theirs))
    data = batches(5, dtype)
    step = nimble.compile_step(
        mine, nn.CrossEntropyLoss(), optimizer, data[0], accumulate=3, **options
    )
    for _ in range(2):
        step.flush()  # Nothing is there.
        for number, (x, y) in enumerate(data):
            step(x, y)
            (nn.functional.cross_entropy(theirs(x), y) / 3).backward()
            if number in (2, 4):
                if options:
                    nn.utils.clip_grad_norm_(theirs.parameters(), options["clip_norm"])
                reference.step()
                kept = {name: p.grad for name, p in theirs.named_parameters()}
                reference.zero_grad()
        step.flush()
        assert_same(mine, theirs, 1e-9 if dtype is torch.float64 else 2e-3)
        if options:
            torch.testing.assert_close(mine.last.weight.grad, kept["last.weight"])
    assert_same_state(optimizer, reference, 1e-9 if dtype is torch.float64 else 2e-3)


def test_sums_outlast_a_change_halfway():
    """Of what is updated, or with which terms: the gradients of the calls before count too."""
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["sgd"](m.parameters()) for m in (mine, theirs))
    data = batches(8)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0], accumulate=2)
    for number, (x, y) in enumerate(data):
        for one, model in ((optimizer, mine), (reference, theirs)):
            if number in (3, 6):
                model.left.weight.requires_grad_(number == 6)
                one.param_groups[0]["weight_decay"] = 0.1 * number
        if number == 1:
            step.graph(x, y)
        step(x, y)
        (nn.functional.cross_entropy(theirs(x), y) / 2).backward()
        if number == 3:
            theirs.left.weight.grad = None  # A frozen parameter is not updated.
        if number % 2:
            reference.step()
            reference.zero_grad()
        assert_same(mine, theirs)


def test_what_was_added_up_is_dropped_on_request():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs))
    data = batches(5)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0], accumulate=2)
    step(*data[0])
    theirs(data[0][0])  # The statistics of its norm have seen that batch.
    step.zero_grad()
    follow(step, mine, theirs, reference, data[1:], 2)
    assert_same_state(optimizer, reference)
