"""Two hundred steps: as near to the exact curve as eager's."""

import copy

import pytest
import torch
from steps import OPTIMIZERS, OTHERS, batches, eager_step, pair
from torch import nn

import nimble

KINDS = OPTIMIZERS | OTHERS
CLIMBING = ("dampened", "amsgrad", "adamax")
"""They maximize."""


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_steps_are_as_near_to_the_exact_curve_as_eagers(kind):
    """Both round to float32, in another order, and a step magnifies what was rounded before it:
    what eager itself is off by, compared with float64, is the measure of that. The network has no
    kinks: where rounding decides on which side of one an activation is, any two curves part."""
    mine, theirs = pair(torch.float32, activation=nn.functional.gelu)
    exact = copy.deepcopy(theirs).double()
    optimizers = [KINDS[kind](m.parameters()) for m in (mine, theirs, exact)]
    templates = torch.randn(4, 3, 6, 6)
    data = [(x + templates[y], y) for x, y in batches(10, torch.float32, size=16)] * 20
    sign = -1 if kind in CLIMBING else 1

    def loss_fn(output, target):
        return sign * nn.functional.cross_entropy(output, target)

    step = nimble.compile_step(mine, loss_fn, optimizers[0], data[0])
    ours, eagers, losses = [], [], []
    for x, y in data:
        right = eager_step(exact, optimizers[2], x.double(), y, loss_fn)
        ours.append(abs(step(x, y).item() - right.item()))
        eagers.append(abs(eager_step(theirs, optimizers[1], x, y, loss_fn).item() - right.item()))
        losses.append(sign * right.item())
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10]), "nothing was learnt"
    assert max(ours) <= 4 * max(eagers) + 1e-6
