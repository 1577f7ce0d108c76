"""What is made again instead of kept: the same numbers, with fewer bytes alive."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import graphs, run
from torch import nn
from torch.nn import functional as F

from nimble.graph import DType, verify
from nimble.lower import stages
from nimble.schedule.lifetimes import homes, peak

ACTIVATIONS = {
    "silu": F.silu, "relu": F.relu, "relu6": F.relu6, "hardswish": F.hardswish, "gelu": F.gelu,
    "tanh": torch.tanh, "gate": lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "mixed": lambda x: F.silu(x) + torch.tanh(x * 0.5),
}  # fmt: skip


class Trained(nn.Module):
    """Gradients of a few normed convolutions, each followed by an activation."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 1, bias=False) for _ in names)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8, track_running_stats=False) for _ in names)

    def forward(self, x):
        with torch.enable_grad():
            y = x
            for name, conv, norm in zip(self.names, self.convs, self.norms, strict=True):
                y = ACTIVATIONS[name](norm(conv(y)))
            return torch.autograd.grad((y * y).mean(), list(self.parameters()))


def lowered(model, x, monkeypatch):
    """Without what is made again, and with it; and the tensors of the model."""
    with monkeypatch.context() as patch:
        patch.setattr(stages, "remake", lambda graph, supported: graph)
        kept = graphs(model, (x,), opened=True)[1]
    _, made, tiled, tensors, inputs = graphs(model, (x,), opened=True)
    return kept, made, tiled, tensors, inputs


def alive(graph):
    return peak(homes(graph), range(len(graph.tasks)))


@settings(max_examples=20, deadline=None)
@given(names=st.lists(st.sampled_from(list(ACTIVATIONS)), min_size=1, max_size=4))
def test_the_same_numbers_and_never_more_alive(names):
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as monkeypatch:
        kept, made, tiled, tensors, inputs = lowered(
            Trained(names), torch.randn(2, 8, 6, 6), monkeypatch
        )
    assert alive(verify(made)) <= alive(kept)
    expected = run(kept, tensors, inputs)
    for graph, streams in ((made, 1), (tiled, 2)):
        torch.testing.assert_close(
            run(graph, tensors, inputs, streams), expected, atol=1e-6, rtol=1e-5
        )


@pytest.mark.parametrize("name", ["silu", "hardswish"])
def test_of_an_activation_nothing_is_kept_but_its_result(name, monkeypatch):
    kept, made, *_ = lowered(Trained([name] * 4), torch.randn(4, 8, 16, 16), monkeypatch)

    def images(graph):
        """How many large results the chains hand out."""
        chains = [task for task in graph.tasks if task.op == "nimble.pointwise"]
        return sum(graph[v].numel >= 8192 for task in chains for v in task.writes)

    assert images(made) < images(kept)
    assert len(made.tasks) == len(kept.tasks)
    assert alive(made) < alive(kept)


def test_a_mask_is_smaller_than_what_it_is_made_from(monkeypatch):
    kept, made, *_ = lowered(Trained(["relu6"] * 3), torch.randn(4, 8, 16, 16), monkeypatch)

    def masks(graph):
        return sum(graph[v].dtype is DType.BOOL for task in graph.tasks for v in task.writes)

    assert masks(made) == masks(kept) == 2


def test_it_is_made_from_what_is_nearest(monkeypatch):
    """The gradient of a tanh from its result, which the next layer keeps."""
    kept, made, *_ = lowered(Trained(["tanh"] * 3), torch.randn(4, 8, 16, 16), monkeypatch)

    def tanhs(graph):
        return sum(str(task.kwargs).count("'tanh'") for task in graph.tasks)

    assert alive(made) < alive(kept)
    assert tanhs(made) == tanhs(kept) == 3


def test_a_result_stays(monkeypatch):
    """The caller sees what could be made again."""
    norm = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(x):
        with torch.enable_grad():
            y = norm(x * 2.0)
            gate = torch.sigmoid(y)
            (gradient,) = torch.autograd.grad((F.silu(y).matmul(x)).sum(), [norm.weight])
        return gradient, gate.detach()

    x = torch.randn(4, 8, 16, 16)
    _, made, _, tensors, inputs = lowered(forward, x, monkeypatch)
    gradient, gate, *_ = run(made, tensors, inputs)
    expected = forward(x)
    torch.testing.assert_close(gradient, expected[0], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(gate, expected[1], atol=1e-5, rtol=1e-4)
