"""Squeeze and excite: gates go into the weights of the layer after them, where those are few."""

import pytest
import torch
from lowered import agree
from torch import nn


class Excited(nn.Module):
    def __init__(self, channels=24, out=8, kernel=1, groups=1):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.last = nn.Conv2d(channels, out, kernel, groups=groups)

    def forward(self, x):
        x = torch.relu(self.first(x))
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return torch.relu(self.last(self.product(x, gate))).mean((2, 3))

    def product(self, x, gate):
        return x * gate


def gated(graph):
    return [task for task in graph.tasks if task.name.endswith(".gated")]


@pytest.mark.parametrize("out", [8, 16, 40])
def test_the_weights_are_scaled(out):
    lowered, tiled = agree(Excited(out=out), torch.randn(1, 3, 20, 20))
    (task,) = gated(lowered)
    assert lowered[task.writes[0]].numel < 24 * 20 * 20
    assert len(tiled.tasks) > len(lowered.tasks)


def test_the_other_way_round():
    model = Excited()
    model.product = lambda x, gate: gate * x
    assert gated(agree(model, torch.randn(1, 3, 20, 20))[0])


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 3, 20, 20)),  # a gate for each of two images
        ({}, (1, 3, 4, 4)),  # more weights than pixels
        ({"kernel": 3}, (1, 3, 20, 20)),
        ({"groups": 2}, (1, 3, 20, 20)),
    ],
)
def test_where_it_would_not_do(options, shape):
    assert not gated(agree(Excited(**options), torch.randn(shape))[0])


def test_images_that_others_read_are_made():
    class Shown(Excited):
        def forward(self, x):
            x = torch.relu(self.first(x))
            x = x * torch.sigmoid(self.up(self.down(x.mean((2, 3), keepdim=True))))
            return self.last(x).mean((2, 3)), x.amax((2, 3))

    assert not gated(agree(Shown(), torch.randn(1, 3, 20, 20))[0])
