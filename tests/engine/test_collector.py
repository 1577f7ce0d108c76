"""While plans are made Python looks for garbage less often, and then as before."""

import gc

import pytest
import torch
from torch import nn

import nimble
from nimble.collector import collected_seldom
from nimble.errors import CaptureError


@pytest.fixture
def usual():
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield (700, 11, 12)
    gc.set_threshold(*before)


def test_it_is_as_before_when_the_last_plan_is_made(usual):
    with collected_seldom():
        assert gc.get_threshold() > usual
        with collected_seldom():
            pass
        assert gc.get_threshold() > usual
    assert gc.get_threshold() == usual


def test_a_collector_that_is_off_stays_off(usual):
    gc.set_threshold(0)
    with collected_seldom():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_what_the_model_sets_meanwhile_stays(usual):
    with collected_seldom():
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)


def test_so_it_is_after_a_model_that_cannot_be_captured(usual):
    class Refused(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(CaptureError):
        nimble.compile(Refused(), (torch.ones(2),))
    assert gc.get_threshold() == usual
