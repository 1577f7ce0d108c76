"""What models do in forward that a trace has to take otherwise than a call."""

import copy
import pickle

import pytest
import torch
from torch import nn, optim
from torch.utils.checkpoint import checkpoint

import nimble
from nimble.errors import CaptureError, InputError


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(6, 8, batch_first=True, **options)

    def forward(self, x):
        return self.layers(x)[0]


class Around(nn.Module):
    """A small net, with something around its middle."""

    def __init__(self, around):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
        self.around = around

    def forward(self, x):
        return self.last(self.around(nn.Sequential(self.first, nn.Tanh()), x))


def profiled(layer, x):
    with torch.profiler.record_function("the middle"):
        return layer(x)


def reversed_gradient(layer, x):
    made = layer(x)
    made.register_hook(lambda gradient: -2 * gradient)
    return made


def pooled(layer, x):
    """Eager's results lie otherwise where a gradient is needed: each has to be viewed its way."""
    needed = nn.functional.max_pool1d(layer(x).transpose(1, 2), 2)
    plain = nn.functional.max_pool1d(x.transpose(1, 2), 2)
    return needed.transpose(1, 2).view(len(x), 2, 6) + plain.view(len(x), 2, 6)


MODELS = {
    "lstm": lambda: Recurrent(nn.LSTM),
    "two layers, both ways": lambda: Recurrent(
        nn.LSTM, num_layers=2, bidirectional=True, bias=False
    ),
    "gru": lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True),
    "rnn": lambda: Recurrent(nn.RNN),
    "record_function": lambda: Around(profiled),
    "checkpoint": lambda: Around(lambda f, x: checkpoint(f, x, use_reentrant=False)),
    "reentrant": lambda: Around(lambda f, x: checkpoint(f, x, use_reentrant=True)),
    "a hook": lambda: Around(reversed_gradient),
    "max pooling": lambda: Around(pooled),
}


@pytest.mark.parametrize("kind", MODELS)
def test_follows_eager(kind):
    torch.manual_seed(0)
    mine = MODELS[kind]()
    theirs = copy.deepcopy(mine)
    x = torch.randn(4, 5, 6, requires_grad=kind == "reentrant")
    y = torch.randn_like(mine(x))
    optimizer, reference = (optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (mine, theirs))
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x.detach(), y))
    for _ in range(3):
        loss = step(x.detach(), y)
        reference.zero_grad()
        eager = nn.functional.mse_loss(theirs(x), y)
        eager.backward()
        reference.step()
        torch.testing.assert_close(loss, eager.detach(), rtol=1e-5, atol=1e-6)
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert torch.backends.mkldnn.enabled


def simple():
    model = nn.Linear(6, 3)
    return model, optim.SGD(model.parameters(), 0.1), (torch.randn(4, 6), torch.randn(4, 3))


def test_a_hook_that_only_looks_is_told():
    def seen(layer, x):
        made = layer(x)
        made.register_hook(lambda gradient: print(gradient.norm()))
        return made

    model, (_, _, batch) = Around(seen), simple()
    with pytest.raises(CaptureError, match="a hook on a tensor that returns no gradient"):
        nimble.compile_step(model, nn.MSELoss(), optim.SGD(model.parameters(), 0.1), batch)


def test_a_step_inside_of_autocast_is_told():
    model, optimizer, batch = simple()
    step = nimble.compile_step(model, nn.MSELoss(), optimizer, batch)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(InputError, match=r"pass autocast=torch.bfloat16 to compile_step"),
    ):
        step(*batch)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copies_of_a_step_are_told(copied):
    model, optimizer, batch = simple()
    step = nimble.compile_step(model, nn.MSELoss(), optimizer, batch)
    with pytest.raises(InputError, match="cannot be copied or pickled"):
        copied(step)


def test_what_torch_compile_made_is_told():
    model, optimizer, batch = simple()
    with pytest.raises(InputError, match=r"made by torch.compile already"):
        nimble.compile_step(torch.compile(model, backend="eager"), nn.MSELoss(), optimizer, batch)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_torch_jit_made_is_told():
    model, optimizer, batch = simple()
    with pytest.raises(CaptureError, match="compile the model that it was made from"):
        nimble.compile_step(torch.jit.script(model), nn.MSELoss(), optimizer, batch)
