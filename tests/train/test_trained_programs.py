"""Random small networks agree with eager in gradients and updated state."""

import copy
import os

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import nimble

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))
MANY = int(os.environ.get("NIMBLE_TRAINED_PROGRAMS", "300"))
ACTIVATIONS = [
    "relu", "relu6", "silu", "gelu", "tanh", "sigmoid", "hardswish", "leaky_relu", "elu",
    "softplus", "mish", "hardsigmoid", "logsigmoid", "selu", "softsign",
]  # fmt: skip
LAYERS = ["conv", "depthwise", "pointwise", "strided", "norm", "act", "residual", "pool", "mean",
          "branch", "scale", "softmax", "cell"]  # fmt: skip


class Random(nn.Module):
    """Layers on images of eight channels, each an operator or two."""

    def __init__(self, kinds, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.kinds = kinds
        self.first = nn.Conv2d(2, 8, 1)
        self.layers = nn.ModuleList(self.layer(kind, number) for kind, number in kinds)
        self.last = nn.Linear(8, 3)

    @staticmethod
    def layer(kind, number):
        kernel = 1 + 2 * (number % 2)
        if kind in ("conv", "branch", "residual"):
            return nn.Conv2d(8, 8, kernel, padding=kernel // 2, bias=number % 3 > 0)
        if kind == "depthwise":
            return nn.Conv2d(8, 8, 3, padding=1, groups=8)
        if kind == "pointwise":
            return nn.Linear(8, 8)
        if kind == "strided":
            return nn.Conv2d(8, 8, kernel, stride=2, padding=kernel // 2)
        if kind == "norm":
            return nn.LayerNorm(8) if number % 3 == 0 else nn.BatchNorm2d(8)
        if kind == "scale":
            return nn.Conv2d(8, 8, 1)
        if kind == "cell":
            return (nn.RNNCell, nn.GRUCell)[number % 2](8, 8)
        return nn.Identity()

    def forward(self, x):
        x = self.first(x)
        kept = x
        for (kind, number), layer in zip(self.kinds, self.layers, strict=True):
            x = self.step(kind, number, layer, x, kept)
            if kind == "branch":
                kept = x
        return self.last(x.mean((2, 3)))

    @staticmethod
    def step(kind, number, layer, x, kept):
        if kind == "act":
            return getattr(nn.functional, ACTIVATIONS[number % len(ACTIVATIONS)])(x)
        if kind == "residual":
            return x + layer(x)
        if kind == "pool":
            return nn.functional.max_pool2d(x, 2) if min(x.shape[2:]) > 3 else x.abs()
        if kind == "mean":
            return x - x.mean(number % 4, keepdim=True)
        if kind == "branch":
            return layer(x) * (kept.mean() + 1)
        if kind == "scale":
            return x * layer(x.mean((2, 3), keepdim=True)).sigmoid()
        if kind == "softmax":
            return x.softmax(1) * x
        if kind == "cell":  # Both of its biases have the same gradient, of all calls.
            pixels = x.permute(0, 2, 3, 1)
            rows = h = pixels.flatten(0, 2)
            for _ in range(2 + number % 3):
                h = layer(rows, h)
            return h.view(pixels.shape).permute(0, 3, 1, 2)
        if kind == "pointwise" or isinstance(layer, nn.LayerNorm):
            return layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return layer(x)


OPTIMIZERS = [
    lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9, nesterov=True),
    lambda ps: torch.optim.SGD(ps, lr=0.02, weight_decay=0.1),
    lambda ps: torch.optim.AdamW(ps, lr=1e-3, eps=1e-4),
    lambda ps: torch.optim.Adam(ps, lr=1e-3, eps=1e-4, amsgrad=True, weight_decay=0.01),
]
"""Biases before a norm have no gradient but rounding errors, of eager's too. A small eps makes
steps of these."""


def learns_as_in_eager(kinds, seed, make, options, workers):
    """In double precision: three steps, with the gradients of each."""
    mine = Random(kinds, seed).double()
    theirs = copy.deepcopy(mine)
    optimizer, reference = make(mine.parameters()), make(theirs.parameters())
    batches = [(torch.randn(3, 2, 6, 5).double(), torch.randn(3, 3).double()) for _ in range(3)]
    step = nimble.compile_step(
        mine, nn.MSELoss(), optimizer, batches[0], keep_grads=True, workers=workers, **options
    )
    for x, y in batches:
        loss = step(x, y)
        reference.zero_grad()
        expected = nn.functional.mse_loss(theirs(x), y)
        expected.backward()
        if "clip_norm" in options:
            nn.utils.clip_grad_norm_(theirs.parameters(), options["clip_norm"])
        if "clip_value" in options:
            nn.utils.clip_grad_value_(theirs.parameters(), options["clip_value"])
        reference.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-9, atol=1e-9)
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None), name
            if q.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-7, atol=1e-9, msg=name)
    for (name, a), b in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


learning = {
    "kinds": st.lists(st.tuples(st.sampled_from(LAYERS), st.integers(0, 11)), max_size=7),
    "seed": st.integers(0, 2**32),
    "make": st.sampled_from(OPTIMIZERS),
    "options": st.sampled_from([{}, {"clip_norm": 0.05}, {"clip_value": 0.01}]),
    "workers": st.integers(1, 2),
}


@given(**learning)
@settings(relaxed, max_examples=12)
def test_random_networks_learn_as_in_eager(kinds, seed, make, options, workers):
    learns_as_in_eager(kinds, seed, make, options, workers)


@pytest.mark.full
@given(**learning)
@settings(relaxed, max_examples=MANY)
def test_three_hundred_networks_learn_as_in_eager(kinds, seed, make, options, workers):
    learns_as_in_eager(kinds, seed, make, options, workers)


def is_as_near_as_eager(kinds, seed, workers):
    """In single precision, by our own kernels: gradients beside those in double precision."""
    mine = Random(kinds, seed)
    theirs, exact = copy.deepcopy(mine), copy.deepcopy(mine).double()
    x, y = torch.randn(16, 2, 6, 5), torch.randn(16, 3)
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.02)
    step = nimble.compile_step(
        mine, nn.MSELoss(), optimizer, (x, y), keep_grads=True, workers=workers
    )
    step(x, y)
    for model, inputs in ((theirs, (x, y)), (exact, (x.double(), y.double()))):
        nn.functional.mse_loss(model(inputs[0]), inputs[1]).backward()
    scale = max(p.grad.norm() for p in exact.parameters())
    for (name, p), q, best in zip(
        mine.named_parameters(), theirs.parameters(), exact.parameters(), strict=True
    ):
        off, own = (p.grad - best.grad).norm(), (q.grad - best.grad).norm()
        assert off <= 6 * own + 3e-6 * best.grad.norm() + 1e-6 * scale, name


native = {
    "kinds": st.lists(st.tuples(st.sampled_from(LAYERS), st.integers(0, 11)), max_size=6),
    "seed": st.integers(0, 2**32),
    "workers": st.integers(1, 2),
}


CANCELLING = [("pointwise", 0), ("branch", 1), ("conv", 0), ("act", 2), *[("pointwise", 0)] * 2]
"""Gradients of biases that nearly cancel when they are added up."""


@given(**native)
@example(kinds=CANCELLING, seed=412210502, workers=1)
@example(kinds=[("cell", 2)], seed=0, workers=1)
@settings(relaxed, max_examples=12)
def test_native_gradients_are_as_near_as_eagers(kinds, seed, workers):
    is_as_near_as_eager(kinds, seed, workers)


@pytest.mark.full
@given(**native)
@settings(relaxed, max_examples=MANY)
def test_native_gradients_of_three_hundred_networks(kinds, seed, workers):
    is_as_near_as_eager(kinds, seed, workers)
