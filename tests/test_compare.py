"""Comparing with eager needs a second input, found by trying."""

import pytest
import torch

from nimble.capture.structure import flatten
from nimble.compare import SENSITIVE, TRIES, Reference, another
from nimble.errors import InputError


def second_input(model, *args):
    tensors, structure = flatten((args, {}))
    return another(model, Reference.of(model, tensors, structure), tensors, structure)


def test_inputs_that_the_model_refuses_are_passed_over():
    def model(x):
        if x[0] > 0:
            raise ValueError("positive")
        return x * 2

    (found,), reference, apart = second_input(model, -torch.ones(2))
    assert found[0] <= 0
    assert torch.equal(reference.eager[0], found * 2)
    assert apart >= SENSITIVE


def test_a_model_that_takes_no_other_input_tells_its_first_error():
    seen = []

    def model(x):
        if not torch.equal(x, torch.ones(2, dtype=x.dtype)):
            seen.append(x)
            raise ValueError(f"refusal {len(seen)}")
        return x

    with pytest.raises(InputError, match=r"ValueError: refusal 1$") as caught:
        second_input(model, torch.ones(2))
    assert str(caught.value.__cause__) == "refusal 1"
    assert len(seen) == TRIES


def test_of_inputs_that_all_give_nearly_the_same_the_most_different_is_taken():
    def model(x):
        return 1 + x.abs().clamp(max=1) * SENSITIVE / 4

    *_, apart = second_input(model, torch.zeros(1))
    assert apart == pytest.approx(SENSITIVE / 4, rel=0.05)
