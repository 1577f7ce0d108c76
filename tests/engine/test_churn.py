"""A model that is compiled again and again: told once."""

import warnings

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import RecompileWarning


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1.0

    def forward(self, x):
        return x * self.factor


def test_an_attribute_that_changes_with_every_call_is_named():
    model = Scaled()
    x = torch.ones(2)
    engine = nimble.compile(model, (x,), tune="off")

    def many_calls():
        for number in range(12):
            model.factor = 1.0 + number
            assert engine(x).tolist() == [1.0 + number] * 2

    with pytest.warns(RecompileWarning, match=r"Scaled: .* dropped 5 times.*'factor'") as told:
        many_calls()
    assert len(told) == 1


def test_more_shapes_than_plans():
    engine = nimble.compile(lambda x: x + 1, (torch.ones(1),), max_plans=2, tune="off")

    def many_shapes():
        for size in (2, 3, 4, 5, 6):
            engine(torch.ones(size))

    with pytest.warns(RecompileWarning, match=r"more than 2 kinds.*max_plans="):
        many_shapes()


def test_a_few_changes_are_nothing_to_tell():
    model = Scaled()
    x = torch.ones(2)
    engine = nimble.compile(model, (x,), tune="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(4):
            model.factor = float(number)
            engine(x)
