"""A batch norm with fixed statistics disappears into the layer before it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import run
from sketch import Sketch
from torch import nn
from tracing import trace

from nimble.graph import Graph, Ref, Role, verify
from nimble.rewrite import fold_batch_norm, rewrite


def trained(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Statistics and weights as after training: none of them 0 or 1."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None and module.running_var is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 2)
                nn.init.normal_(module.bias)
    return model.to(dtype).eval()


def norms(graph: Graph) -> int:
    return sum("batch_norm" in task.op for task in graph.tasks)


LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 7)),
    "conv2d": (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), (2, 3, 7, 7)),
    "conv3d": (nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), (2, 3, 5, 5, 5)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 4, 7, 7)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), (2, 4, 7, 7)),
    "strided": (nn.Conv2d(3, 4, 3, 2, 1, dilation=2), nn.BatchNorm2d(4), (2, 3, 9, 9)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 5, 5)),
    "transposed, grouped": (nn.ConvTranspose1d(4, 6, 3, groups=2), nn.BatchNorm1d(6), (2, 4, 5)),
    "transposed 3d": (nn.ConvTranspose3d(2, 3, 2, bias=False), nn.BatchNorm3d(3), (1, 2, 3, 3, 3)),
    "linear": (nn.Linear(3, 4), nn.BatchNorm1d(4), (5, 3)),
    "linear without bias": (nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), (5, 3)),
    "no affine": (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), (2, 3, 7, 7)),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_folded_layer_computes_the_same(kind: str, dtype: torch.dtype) -> None:
    layer, norm, shape = LAYERS[kind]
    model = trained(nn.Sequential(layer, norm), dtype)
    x = torch.randn(shape, dtype=dtype)
    captured = trace(model, x)
    assert norms(captured.graph) == 1
    graph = verify(fold_batch_norm(captured.graph))
    assert norms(graph) == 0
    (got,) = run(graph, captured.tensors, [x])
    with torch.no_grad():
        expected = model(x)
    tolerance = 2e-6 if dtype is torch.float32 else 1e-14
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    assert got.stride() == expected.stride()


def test_channels_last_weights_keep_their_layout() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 7, 7).to(memory_format=torch.channels_last)
    captured = trace(model, x)
    graph = verify(fold_batch_norm(captured.graph))
    weight = next(v for v in graph.roots(Role.CONSTANT) if v.name.endswith("weight"))
    assert weight.strides == captured.tensors["0.weight"].stride()
    with torch.no_grad():
        torch.testing.assert_close(run(graph, captured.tensors, [x])[0], model(x))


def test_weights_changed_later_are_folded_anew() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    x = torch.randn(2, 3, 7, 7)
    captured = trace(model, x)
    graph = fold_batch_norm(captured.graph)
    with torch.no_grad():
        captured.tensors["0.weight"].mul_(3)
        captured.tensors["1.running_mean"].add_(1)
        torch.testing.assert_close(run(graph, captured.tensors, [x])[0], model(x))


def test_the_convolution_keeps_its_name_and_origin() -> None:
    captured = trace(
        trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), torch.ones(1, 3, 7, 7)
    )
    before = next(t for t in captured.graph.tasks if t.op == "aten.convolution.default")
    (after,) = rewrite(captured.graph)[0].tasks
    assert (after.name, after.origin, after.op) == (before.name, before.origin, before.op)


def all_are_folded(model: nn.Module, x: torch.Tensor) -> None:
    """No batch norm is left, and the result is the model's."""
    captured = trace(model, x)
    graph = verify(fold_batch_norm(captured.graph))
    assert norms(graph) == 0
    with torch.no_grad():
        torch.testing.assert_close(run(graph, captured.tensors, [x])[0], model(x))


def test_two_batch_norms_in_a_row_are_both_folded() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    all_are_folded(trained(model), torch.randn(2, 3, 7, 7))


class Shared(nn.Module):
    """One convolution called twice, with a batch norm for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.two = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.two(self.conv(self.one(self.conv(x)).relu()))
        return out


def test_shared_weights_get_a_copy_for_each_batch_norm() -> None:
    all_are_folded(trained(Shared()), torch.randn(2, 3, 4, 4))


class Moved(nn.Module):
    """Two convolutions and what happens to their channels before the batch norm."""

    def __init__(self, move: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 2, 3, bias=False)
        self.norm, self.move = nn.BatchNorm2d(6), move

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.move(self.one(x), self.two(x)))
        return out


MOVES: dict[str, Callable[..., torch.Tensor]] = {
    "joined": lambda a, b: torch.cat([a, b], 1),
    "joined, counted from the end": lambda a, b: torch.cat([b, a], -3),
    "cropped": lambda a, b: torch.cat([a, b], 1)[:, :, 1:, :-2].contiguous(),
    "cropped before": lambda a, b: torch.cat([a[:, :, 1:, 1:], b[:, :, :-1, :-1]], 1),
    "nested": lambda a, b: torch.cat([torch.cat([a], 1), b.clone()], 1),
}


@pytest.mark.parametrize("move", MOVES)
def test_layers_whose_channels_are_only_moved_are_folded(move: str) -> None:
    model, x = trained(Moved(MOVES[move])), torch.randn(2, 3, 7, 8)
    captured = trace(model, x)
    graph = verify(fold_batch_norm(captured.graph))
    assert norms(graph) == 0
    with torch.no_grad():
        torch.testing.assert_close(run(graph, captured.tensors, [x])[0], model(x))


KEPT: dict[str, Callable[..., torch.Tensor]] = {
    "joined with itself": lambda a, b: torch.cat([a, a], 1)[:, :6].clone(),
    "only some channels": lambda a, b: torch.cat([a[:, 1:], a[:, 1:]], 1),
    "joined with another result": lambda a, b: torch.cat([a, b.relu()], 1),
    "joined along height": lambda a, b: torch.cat([torch.cat([a, b], 1)] * 2, 2),
    "transposed": lambda a, b: torch.cat([a, b], 1).transpose(2, 3).contiguous(),
    "every other": lambda a, b: torch.cat([a, b], 1)[:, :, ::2].contiguous(),
    "padded": lambda a, b: nn.functional.pad(torch.cat([a, b], 1), (1, 1)),
}


@pytest.mark.parametrize("move", KEPT)
def test_layers_whose_channels_meet_others_are_left_alone(move: str) -> None:
    model = trained(Moved(KEPT[move]))
    captured = trace(model, torch.randn(2, 3, 7, 8))
    assert fold_batch_norm(captured.graph) == captured.graph


def read_twice(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> Any:
    y = conv(x)
    return norm(y) + y.mean()


def two_norms(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> Any:
    y = conv(x)
    return norm(y), norm(y + 1), norm(y) * 2


def returned(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> Any:
    y = conv(x)
    return norm(y), y


def view_returned(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> Any:
    y = conv(x)
    return norm(y), y[0]


def view_normed(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> Any:
    return norm(conv(x).transpose(2, 3))


@pytest.mark.parametrize("use", [read_twice, two_norms, returned, view_returned, view_normed])
def test_a_result_that_others_see_is_left_alone(use: Callable[..., Any]) -> None:
    conv, norm = trained(nn.Conv2d(3, 4, 3)), trained(nn.BatchNorm2d(4))
    captured = trace(lambda x: use(conv, norm, x), torch.ones(1, 3, 7, 8))
    assert fold_batch_norm(captured.graph) == captured.graph


def test_half_precision_is_left_alone() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.bfloat16)
    captured = trace(model, torch.ones(1, 3, 7, 7, dtype=torch.bfloat16))
    assert norms(fold_batch_norm(captured.graph)) == 1


def test_statistics_of_the_batch_are_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    captured = trace(model.train(), torch.randn(2, 3, 7, 7))
    assert fold_batch_norm(captured.graph) == captured.graph
    untracked = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    captured = trace(untracked.eval(), torch.randn(2, 3, 7, 7))
    assert fold_batch_norm(captured.graph) == captured.graph


@pytest.mark.parametrize("role", ["state", "input"])
def test_statistics_that_calls_change_are_left_alone(role: str) -> None:
    s = Sketch()
    x, w = s.root("input", "x", 2, 3, 5, 5), s.root("parameter", "w", 4, 3, 1, 1)
    mean, variance = s.root(role, "mean", 4), s.root("parameter", "variance", 4)
    y = s.call(
        "aten.convolution.default",
        Ref(x), Ref(w), None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1,
    )  # fmt: skip
    z = s.call(
        "aten.native_batch_norm.default",
        Ref(y), None, None, Ref(mean), Ref(variance), False, 0.1, 1e-5,
    )  # fmt: skip
    if role == "state":
        s.update(mean, s.call("aten.add.Scalar", Ref(mean), 1.0))
    graph = s.graph(z)
    assert fold_batch_norm(graph) == graph


def test_a_scaled_product_is_left_alone() -> None:
    s = Sketch()
    x, w, b = (
        s.root("input", "x", 2, 3),
        s.root("parameter", "w", 3, 4),
        s.root("parameter", "b", 4),
    )
    mean, variance = s.root("parameter", "mean", 4), s.root("parameter", "variance", 4)
    y = s.call("aten.addmm.default", Ref(b), Ref(x), Ref(w), alpha=2)
    z = s.call(
        "aten.native_batch_norm.default",
        Ref(y), None, None, Ref(mean), Ref(variance), False, 0.1, 1e-5,
    )  # fmt: skip
    graph = s.graph(z)
    assert fold_batch_norm(graph) == graph
