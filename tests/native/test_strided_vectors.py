"""Weights and biases of one dimension that do not lie side by side, as views of a parameter may."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nimble

LAYERS: dict[str, tuple[int, tuple[int, ...], Callable[..., torch.Tensor]]] = {
    "layer norm": (48, (6, 48), lambda x, v: F.layer_norm(x, (48,), v, v)),
    "rms norm": (48, (6, 48), lambda x, v: F.rms_norm(x, (48,), v)),
    "group norm": (16, (2, 16, 5, 5), lambda x, v: F.group_norm(x, 4, v, v)),
    "instance norm": (16, (1, 16, 5, 5), lambda x, v: F.instance_norm(x, weight=v, bias=v)),
    "batch norm": (16, (2, 16, 8, 8), lambda x, v: F.batch_norm(x, None, None, v, v, True)),
    "linear": (48, (6, 32), lambda x, v: F.linear(x, torch.ones(48, 32), v)),
    "convolution": (32, (2, 16, 8, 8), lambda x, v: F.conv2d(x, torch.ones(32, 16, 3, 3), v)),
    "pixelwise": (32, (2, 16, 8, 8), lambda x, v: F.conv2d(x, torch.ones(32, 16, 1, 1), v)),
    "depthwise": (
        16, (2, 16, 8, 8), lambda x, v: F.conv2d(x, torch.ones(16, 1, 3, 3), v, groups=16),
    ),
    "transposed": (
        32, (2, 16, 8, 8), lambda x, v: F.conv_transpose2d(x, torch.ones(16, 32, 3, 3), v, 2),
    ),
}  # fmt: skip


class Layer(nn.Module):
    def __init__(self, name: str, lies: str) -> None:
        super().__init__()
        self.size, _, self.layer = LAYERS[name]
        self.lies = lies
        self.vector = nn.Parameter(torch.randn((self.size, 4) if lies == "column" else (1,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = self.vector[:, 1] if self.lies == "column" else self.vector.expand(self.size)
        return self.layer(x, v)


@pytest.mark.parametrize("lies", ["column", "expanded"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_vector_may_lie_anyhow(name: str, lies: str) -> None:
    torch.manual_seed(0)
    model, x = Layer(name, lies), torch.randn(LAYERS[name][1])
    expected = model(x).detach()
    torch.testing.assert_close(nimble.compile(model, (x,))(x), expected, rtol=1e-4, atol=1e-5)
    target = torch.randn_like(expected)
    loss = F.mse_loss(model(x), target)
    loss.backward()
    updated = model.vector.detach() - 0.1 * model.vector.grad
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.compile_step(model, F.mse_loss, optimizer, example=(x, target))
    torch.testing.assert_close(step(x, target), loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.vector.detach(), updated, rtol=1e-4, atol=1e-5)
