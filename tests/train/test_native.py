"""Steps by native kernels against eager: gradients, updated state, and which kernels were used."""

import copy

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from steps import OPTIMIZERS, OTHERS, eager_step
from torch import nn

import nimble
from nimble import _core
from nimble.devices.cpu.programs import instructions


def conv(*args, **kwargs):
    return nn.Conv2d(*args, bias=False, **kwargs)


def normed(channels, *layers):
    return nn.Sequential(*layers, nn.BatchNorm2d(channels))


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Joined(nn.Module):
    """An image that is read for itself and as part of a concatenation."""

    def __init__(self, reader):
        super().__init__()
        self.first, self.second = conv(3, 8, 3, padding=1), conv(3, 8, 3, padding=1)
        self.reader = reader

    def forward(self, x):
        part = nn.functional.silu(self.first(x))
        joined = torch.cat([part, self.second(x).tanh()], 1)
        return self.reader(part) * joined.flatten(1).mean(1)[:, None, None, None]


NETWORKS = {
    "dense": [normed(20, conv(3, 20, 3, padding=1)), nn.ReLU(), nn.Conv2d(20, 17, 3)],
    "strided": [
        normed(24, conv(3, 24, 3, stride=2, padding=1)),
        nn.ReLU6(),
        conv(24, 16, 2, stride=2),
    ],
    "pointwise": [normed(16, conv(3, 16, 1)), nn.ReLU(), nn.Conv2d(16, 40, 1, stride=2)],
    "depthwise": [
        normed(16, conv(3, 16, 1)),
        nn.ReLU6(),
        normed(16, conv(16, 16, 3, padding=1, groups=16)),
        nn.SiLU(),
        normed(16, conv(16, 16, 5, stride=2, padding=2, groups=16)),
        nn.Hardswish(),
        conv(16, 8, 1),
    ],
    "residual": [
        normed(16, conv(3, 16, 3, padding=1)),
        nn.ReLU(),
        Residual(normed(16, conv(16, 16, 3, padding=1))),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Residual(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1), nn.Sigmoid())),
    ],
    "pooled": [normed(20, conv(3, 20, 3)), nn.ReLU(), nn.MaxPool2d(3, 2, 1), conv(20, 8, 1)],
    # Weights larger than the images that they meet, all of them or some pixels.
    "shrunk": [
        normed(64, conv(3, 64, 3, stride=4)),
        nn.ReLU(),
        normed(128, conv(64, 128, 1, stride=2)),
        nn.ReLU(),
        normed(128, conv(128, 128, 3, stride=2, padding=1)),
    ],
    "dilated": [normed(12, conv(3, 12, 3, padding=2, dilation=2)), nn.GELU(), conv(12, 5, (1, 3))],
    "grouped": [conv(3, 24, 3), nn.LeakyReLU(), conv(24, 24, 3, groups=3)],
    # Its gradient by ATen counts on images that lie alike in memory.
    "group norms": [
        nn.GroupNorm(1, 3),
        conv(3, 16, 3),
        nn.ReLU(),
        nn.GroupNorm(4, 16),
        conv(16, 8, 1),
    ],
    "joined, convolved": [Joined(conv(8, 8, 1))],
    "joined, normed": [Joined(nn.GroupNorm(2, 8))],
    "joined, resampled": [Joined(nn.Upsample(scale_factor=2))],
}


def network(name):
    torch.manual_seed(0)
    body = copy.deepcopy(nn.Sequential(*NETWORKS[name]))
    width = body(torch.zeros(2, 3, 12, 12)).shape[1]
    return nn.Sequential(
        body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 6)
    ).train()


def gradients(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_as_near_to_the_exact_ones_as_eagers(name, workers, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    mine = network(name)
    theirs, exact = copy.deepcopy(mine), copy.deepcopy(mine).double()
    x, y = torch.randn(32, 3, 12, 12), torch.randint(0, 6, (32,))
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)
    step = nimble.compile_step(
        mine, nn.CrossEntropyLoss(), optimizer, (x, y), keep_grads=True, workers=workers
    )
    loss = step(x, y)
    eager_loss, eager = gradients(theirs, x, y)
    exact_loss, right = gradients(exact, x.double(), y)
    assert abs(loss - exact_loss) <= 4 * abs(eager_loss - exact_loss) + 2e-6
    for (called, parameter), other, best in zip(mine.named_parameters(), eager, right, strict=True):
        off = (parameter.grad - best).norm()
        allowed = 4 * (other - best).norm() + 2e-6 * best.norm() + 1e-7
        assert off <= allowed, (called, off, allowed)
    for (called, buffer), other in zip(mine.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(buffer, other, rtol=1e-4, atol=1e-6, msg=called)


@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in ("grouped", "residual")])
def test_no_convolution_norm_or_pooling_is_left_to_aten(name):
    model = network(name)
    x, y = torch.randn(32, 3, 12, 12), torch.randint(0, 6, (32,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y))
    left = {task.op for task in step.engines[0].plans[0].graph.tasks if task.kernel != "native"}
    native = ("conv", "batch_norm", "max_pool", "aten.mm.default")
    assert not [op for op in left if any(name in op for name in native)]
    # Of the states only the count of batches, whole numbers, is copied.
    copies = [t for t in step.engines[0].plans[0].graph.tasks if t.op == "aten.copy_.default"]
    assert len(copies) == sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@example(data=None)
def test_gradients_of_images_smaller_than_the_weights(data):
    """Weights larger than the image are used where they lie, a part of the pixels at a time."""
    if data is None:  # The last rows of the image meet no weight.
        size, kernel, stride, padding, around, batch = (4, 3), (3, 3), (2, 2), (0, 0), (0, 0), 1
    else:
        draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(2))  # noqa: E731
        kernel, stride, padding, around = draw(1, 3), draw(1, 3), draw(0, 1), draw(0, 4)
        size = tuple(max(n, k) for n, k in zip(draw(1, 5), kernel, strict=True))
        batch = data.draw(st.sampled_from([1, 3, 64]))
    torch.manual_seed(0)
    mine = nn.Sequential(
        nn.Conv2d(3, 64, 1),
        nn.ZeroPad2d((0, around[1], 0, around[0])),
        nn.Conv2d(64, 64, kernel, stride, padding, bias=False),
    )
    theirs = copy.deepcopy(mine).double()
    x = torch.randn(batch, 3, *size)
    y = torch.randn_like(mine(x).detach())
    step = nimble.compile_step(
        mine, nn.MSELoss(), torch.optim.SGD(mine.parameters(), lr=0.1), (x, y), keep_grads=True
    )
    step(x, y)
    nn.functional.mse_loss(theirs(x.double()), y.double()).backward()
    for parameter, exact in zip(mine.parameters(), theirs.parameters(), strict=True):
        off = (parameter.grad - exact.grad).abs().max()
        assert off <= 1e-5 * exact.grad.abs().max() + 1e-7


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("affine", [True, False])
def test_the_gradients_of_layer_norms(affine, workers, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    mine = nn.Sequential(
        nn.Linear(20, 48),
        nn.LayerNorm(48, elementwise_affine=affine),
        nn.GELU(),
        nn.Linear(48, 7),
        nn.LayerNorm(7, bias=False),
    )
    theirs, exact = copy.deepcopy(mine), copy.deepcopy(mine).double()
    x, y = torch.randn(130, 20), torch.randint(0, 7, (130,))
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    step = nimble.compile_step(
        mine, nn.CrossEntropyLoss(), optimizer, (x, y), keep_grads=True, workers=workers
    )
    step(x, y)
    _, eager = gradients(theirs, x, y)
    _, right = gradients(exact, x.double(), y)
    for (called, parameter), other, best in zip(mine.named_parameters(), eager, right, strict=True):
        off = (parameter.grad - best).norm()
        assert off <= 4 * (other - best).norm() + 2e-6 * best.norm() + 1e-7, called
    left = {task.op for task in step.engines[0].plans[0].graph.tasks if task.kernel != "native"}
    assert not [op for op in left if "norm" in op]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("padding", [None, 2])
def test_the_gradient_of_an_embedding(padding, workers, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Embedding(50_000, 16, padding_idx=padding), nn.Linear(16, 4))
    theirs = copy.deepcopy(mine)
    optimizer, reference = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, theirs))
    x, y = torch.randint(0, 9, (6, 5)), torch.randn(6, 5, 4)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y), workers=workers)
    assert "nimble.scatter" in {task.op for task in step.engines[0].plans[0].graph.tasks}
    for _ in range(3):
        eager_step(theirs, reference, x, y, nn.functional.mse_loss)
        step(x, y)
    torch.testing.assert_close(mine[0].weight, theirs[0].weight)


COMPILED = {
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    "decay": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


@pytest.mark.parametrize(
    ("kind", "clip_norm"),
    [("momentum", None), ("momentum", 1.0), ("decay", None), ("decay", 1.0), ("adam", None),
     ("adamw", None), ("adamw", 1.0)],
)  # fmt: skip
def test_updates_and_norms_are_programs_compiled_ahead_of_time(kind, clip_norm):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8),
        nn.SiLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    )  # fmt: skip
    x, y = torch.randn(16, 3, 12, 12), torch.randint(0, 4, (16,))
    optimizer = COMPILED[kind](model.parameters())
    step = nimble.compile_step(
        model, nn.CrossEntropyLoss(), optimizer, (x, y), workers=1, tune="off", clip_norm=clip_norm
    )
    graph = step.engines[0].plans[0].graph
    interpreted = []
    for task in graph.tasks:
        if task.op == "nimble.pointwise" and graph[task.writes[0]].numel > 8:
            inputs, steps, outputs = dict(task.kwargs)["program"]
            code = instructions(steps, inputs, outputs)
            if not _core.is_known_program(inputs, len(outputs), *code):
                interpreted.append([name for name, _ in steps])
    short = [names for names in interpreted if len(names) < 4]
    assert interpreted == short, "a long program is interpreted: add it to known.h"


class Gated(nn.Module):
    """Of a language model, with a norm that is written out."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 16, bias=False)

    def forward(self, x):
        normed = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


@pytest.mark.parametrize("workers", [1, 2])
def test_chains_that_would_wait_for_each_other_stay_apart(workers, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    mine = nn.Sequential(Gated(), Gated())
    theirs = copy.deepcopy(mine)
    optimizer, reference = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, theirs))
    x, y = torch.randn(2, 8, 16), torch.randn(2, 8, 16)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y), workers=workers)
    for _ in range(3):
        eager_step(theirs, reference, x, y, nn.functional.mse_loss)
        step(x, y)
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter, theirs.get_parameter(name))


def test_a_batch_of_one_pixel_has_no_variance():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    x, y = torch.randn(2, 3, 1, 1), torch.randint(0, 2, (2,))
    theirs = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y))
    torch.testing.assert_close(step(x, y), gradients(theirs, x, y)[0])


class Then(nn.Module):
    """Layers with a function between them."""

    def __init__(self, first, between, last):
        super().__init__()
        self.first, self.between, self.last = first, between, last

    def forward(self, x):
        return self.last(self.between(self.first(x)))


BETWEEN = {
    # Operators are looked at twice here, and what is laid out anew has names from both times.
    "rows of pooled images": lambda x: nn.functional.rms_norm(
        nn.functional.max_pool2d(x, 2), (x.shape[-1] // 2,)
    ),
    # Its gradient is 0, known ahead of time.
    "signs": lambda x: nn.functional.group_norm(torch.sign(x), 1),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_layers_with_something_between(name, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    mine = Then(nn.Conv2d(16, 16, 3, padding=1), BETWEEN[name], nn.Conv2d(16, 16, 2, 2))
    exact = copy.deepcopy(mine).double()
    x = torch.randn(2, 16, 6, 8)
    y = torch.randn_like(mine(x).detach())
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y), keep_grads=True)
    step(x, y)
    nn.functional.mse_loss(exact(x.double()), y.double()).backward()
    for parameter, right in zip(mine.parameters(), exact.parameters(), strict=True):
        off = (parameter.grad - right.grad).abs().max()
        assert off <= 1e-5 * right.grad.abs().max() + 1e-7


class Cells(nn.Module):
    """A cell that is called several times: both of its biases have the same gradient."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(8, 8)

    def forward(self, x):
        h = None
        for _ in range(4):
            h = self.cell(x, h)
        return h[0] if isinstance(h, tuple) else h


class Sums(nn.Module):
    """Layers whose results are added, again and again."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for _ in range(2):
            x = torch.sigmoid(sum(layer(x) for layer in self.layers))
        return x


ALIKE = {
    "lstm cell": lambda: Cells(nn.LSTMCell),
    "rnn cell": lambda: Cells(nn.RNNCell),
    "sums": Sums,
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [("momentum", {}), ("adamw", {"clip_norm": 0.01}), ("nadam", {"clip_value": 0.001})],
)
@pytest.mark.parametrize("name", ALIKE)
def test_parameters_with_equal_gradients_keep_one_each(name, kind, options, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    mine = ALIKE[name]()
    exact = copy.deepcopy(mine).double()
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    optimizer = {**OPTIMIZERS, **OTHERS}[kind](mine.parameters())
    step = nimble.compile_step(
        mine, nn.MSELoss(), optimizer, (x, y), keep_grads=True, tune="off", **options
    )
    step(x, y)
    nn.functional.mse_loss(exact(x.double()), y.double()).backward()
    if "clip_norm" in options:
        nn.utils.clip_grad_norm_(exact.parameters(), options["clip_norm"])
    if "clip_value" in options:
        nn.utils.clip_grad_value_(exact.parameters(), options["clip_value"])
    for (called, parameter), right in zip(mine.named_parameters(), exact.parameters(), strict=True):
        off = (parameter.grad - right.grad).abs().max()
        assert off <= 1e-5 * right.grad.abs().max() + 1e-7, called
