"""Activations that a model spells out end the convolution or product before them."""

import math

import pytest
import torch
import torch.nn.functional as F
from lowered import agree
from torch import nn

ROOT = math.sqrt(2 / math.pi)
SPELLED = {
    "silu": lambda x: x * torch.sigmoid(x),
    "silu the other way": lambda x: x.sigmoid() * x,
    "hard-swish": lambda x: x * F.relu6(x + 3.0) / 6.0,
    "hard-swish by a share": lambda x: x * (F.relu6(x + 3) / 6),
    "hard-swish by a factor": lambda x: (x + 3).clamp(0, 6) * (1 / 6) * x,
    "hard-swish by its sigmoid": lambda x: x * F.hardsigmoid(x),
    "hard-sigmoid": lambda x: F.relu6(x + 3) / 6,
    "gelu": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "gelu by halves": lambda x: 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5))) * x,
    "gelu by tanh": lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * x.pow(3.0)))),
    "gelu by products": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * x * (1 + 0.044715 * x * x))),
    "gelu by alpha": lambda x: (
        0.5 * x * (1 + torch.tanh(ROOT * torch.add(x, x * x * x, alpha=0.044715)))
    ),
}
OTHERS = {
    "another share": lambda x: x * F.relu6(x + 3.0) / 5.0,
    "another bound": lambda x: x * (x + 3).clamp(0, 5) / 6.0,
    "another shift": lambda x: x * F.relu6(x + 2.0) / 6.0,
    "another value": lambda x: x * torch.sigmoid(x + 1),
    "another root": lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.5)),
    "another cube": lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.05 * x.pow(3.0)))),
    "another power": lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * x.pow(2.0)))),
    "without the one": lambda x: x * 0.5 * torch.erf(x / math.sqrt(2.0)),
}
LAYERS = {
    "convolution": (nn.Conv2d(3, 16, 3), torch.randn(2, 3, 7, 7)),
    "linear": (nn.Linear(12, 32), torch.randn(5, 12)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", SPELLED)
def test_spelled_out(name, layer):
    made, x = LAYERS[layer]
    # Summed up, since a result of the model would be laid out anew by itself.
    lowered, _ = agree(lambda x: SPELLED[name](made(x)).sum(1), x)
    assert "nimble.pointwise" not in [task.op for task in lowered.tasks]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_only_similar_stays_what_it_is(name):
    made, x = LAYERS["linear"]
    lowered, _ = agree(lambda x: OTHERS[name](made(x)), x)
    assert "nimble.pointwise" in [task.op for task in lowered.tasks]


def test_parts_that_others_use_stay():
    made, x = LAYERS["linear"]

    def run(x):
        y = made(x)
        gate = torch.sigmoid(y)
        return y * gate, gate

    lowered, _ = agree(run, x)
    assert len([task for task in lowered.tasks if task.op == "nimble.pointwise"]) == 1
