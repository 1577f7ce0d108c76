"""Verification can fail: for every network, an answer that is not the model's is seen."""

import pytest
import torch
from zoo.test_zoo_build import QUICK, SMALL

from nimble.bench.verify import Exam
from nimble.errors import InputError
from nimble.targets import Made, make


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.full]) for n in SMALL]
)
def test_zeros_and_swapped_answers_are_caught_for_every_network(name):
    exam = Exam.of(make(f"{name}@{SMALL[name]}"))
    first, second = (reference.eager for reference in exam.references)
    zeros = [[torch.zeros_like(t) for t in answer] for answer in (first, second)]
    assert exam.wrong([first, second]) == ""
    assert exam.wrong(zeros).startswith("wrong: off by 1e+00 (allowed ")
    for swapped in ([second, first], [first, first], [second, second]):
        assert exam.wrong(swapped).startswith("wrong: off by ")


@pytest.fixture(scope="module")
def exam():
    return Exam.of(make("mlp@16"))


def answers(exam):
    return [reference.eager for reference in exam.references]


def test_another_precision_is_not_the_same_answer(exam):
    halved = [[t.half() for t in answer] for answer in answers(exam)]
    assert "torch.float16" in exam.wrong(halved)


def test_another_shape_or_number_of_results_is_wrong(exam):
    assert "result 0 is" in exam.wrong([[t[None] for t in answer] for answer in answers(exam)])
    assert "0 results instead of 1" in exam.wrong([[], []])
    assert "2 results instead of 1" in exam.wrong([[*a, *a] for a in answers(exam)])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_wrong(exam, value):
    spoilt = [[t.clone() for t in answer] for answer in answers(exam)]
    spoilt[1][0].view(-1)[0] = value
    assert exam.wrong(spoilt).startswith("wrong: off by inf")


def test_small_errors_pass_and_larger_ones_do_not(exam):
    near, far = (
        [[t + scale * exam.allowed * t.abs().max() for t in a] for a in answers(exam)]
        for scale in (0.1, 10)
    )
    assert exam.wrong(near) == ""
    assert exam.wrong(far).startswith("wrong: off by")
    assert 0 < exam.error(near) < exam.error(far)


def test_a_model_that_cannot_tell_its_inputs_apart_is_refused():
    blind = Made("blind", lambda x: x * 0 + 1, (torch.randn(3),), {})
    with pytest.raises(InputError, match="a wrong answer could not be seen"):
        Exam.of(blind)
