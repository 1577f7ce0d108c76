"""What depends on parameters only is computed ahead of time, and anew when they change."""

from __future__ import annotations

import torch
from reference import run
from sketch import Sketch
from torch import nn
from tracing import trace

from nimble.graph import Ref, Role, verify
from nimble.rewrite import fold_batch_norm, fold_constants, remove_dead_tasks


def test_a_chain_on_parameters_becomes_one_constant() -> None:
    s = Sketch()
    x, w = s.root("input", "x", 2, 3), s.root("parameter", "w", 3, 3)
    scaled = s.call("aten.mul.Tensor", Ref(s.call("aten.exp.default", Ref(w))), 2.0)
    graph = verify(fold_constants(s.graph(s.call("aten.mm.default", Ref(x), Ref(scaled)))))
    assert [task.op for task in graph.tasks] == ["aten.mm.default"]
    (constant,) = graph.roots(Role.CONSTANT)
    assert graph.prologue is not None
    assert [graph.prologue[v].name for v in graph.prologue.outputs] == [constant.name]
    assert [task.op for task in graph.prologue.tasks] == ["aten.exp.default", "aten.mul.Tensor"]
    tensors, inputs = {"w": torch.randn(3, 3)}, [torch.randn(2, 3)]
    for _ in range(2):
        expected = inputs[0] @ (tensors["w"].exp() * 2)
        torch.testing.assert_close(run(graph, tensors, inputs)[0], expected)
        tensors["w"].add_(1)


def test_views_of_parameters_and_of_constants_stay_views() -> None:
    linear = nn.Linear(3, 4)
    captured = trace(lambda x: x @ (linear.weight.t() * 2)[:, 1:3], torch.randn(5, 3))
    graph = verify(fold_constants(captured.graph))
    assert [task.op for task in graph.tasks] == ["aten.mm.default"]
    x = torch.randn(5, 3)
    with torch.no_grad():
        expected = x @ (linear.weight.t() * 2)[:, 1:3]
    torch.testing.assert_close(run(graph, captured.tensors, [x])[0], expected)


def test_folding_again_extends_the_prologue_and_drops_what_only_it_reads() -> None:
    weight, norm = nn.Parameter(torch.randn(4, 3, 1, 1)), nn.BatchNorm2d(4).eval()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.norm = weight, norm

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.norm(nn.functional.conv2d(x, self.weight.exp()))
            return out

    x = torch.randn(2, 3, 5, 5)
    captured = trace(Net(), x)
    first = verify(fold_constants(captured.graph))
    assert [v.name for v in first.roots(Role.CONSTANT)] == ["exp"]
    second = verify(fold_batch_norm(first))
    names = [v.name for v in second.roots(Role.CONSTANT)]
    assert names == ["convolution.bias", "convolution.weight"]
    assert second.prologue is not None
    assert sorted(second.prologue[v].name for v in second.prologue.outputs) == names
    with torch.no_grad():
        torch.testing.assert_close(run(second, captured.tensors, [x])[0], Net()(x))


def test_constants_get_names_that_no_parameter_has() -> None:
    s = Sketch()
    w, x = s.root("parameter", "exp_0", 3), s.root("input", "x", 3)
    graph = s.graph(s.call("aten.add.Tensor", Ref(x), Ref(s.call("aten.exp.default", Ref(w)))))
    graph = verify(fold_constants(graph))
    assert [v.name for v in graph.roots(Role.CONSTANT)] == ["exp_0_1"]
    w_ = torch.randn(3)
    torch.testing.assert_close(run(graph, {"exp_0": w_}, [torch.zeros(3)])[0], w_.exp())


def test_an_output_is_a_new_tensor_at_every_call() -> None:
    s = Sketch()
    w = s.root("parameter", "w", 3)
    a = s.call("aten.exp.default", Ref(s.call("aten.sin.default", Ref(w))))
    graph = verify(fold_constants(s.graph(a)))
    assert [task.op for task in graph.tasks] == ["aten.exp.default"]
    assert graph.content(graph.outputs[0]).role is Role.OUTPUT


def test_an_output_through_a_view_is_a_new_tensor_at_every_call() -> None:
    s = Sketch()
    w = s.root("parameter", "w", 2, 3)
    graph = s.graph(s.transpose(s.call("aten.exp.default", Ref(w))))
    assert fold_constants(graph) == graph


def test_random_numbers_are_drawn_at_every_call() -> None:
    s = Sketch()
    token, w = s.root("state", "rng", dtype="token"), s.root("parameter", "w", 3)
    noise, _ = s.draw(token, "aten.bernoulli.default", Ref(s.call("aten.sigmoid.default", Ref(w))))
    graph = verify(fold_constants(s.graph(s.call("aten.neg.default", Ref(noise)))))
    assert [t.op for t in graph.tasks] == ["aten.bernoulli.default", "aten.neg.default"]


def test_what_depends_on_a_state_or_an_input_is_computed_at_every_call() -> None:
    s = Sketch()
    state, x = s.root("state", "count", 3), s.root("input", "x", 3)
    a = s.call("aten.exp.default", Ref(state))
    b = s.call("aten.exp.default", Ref(x))
    s.update(state, s.call("aten.add.Tensor", Ref(a), Ref(b)))
    graph = s.graph(s.call("aten.mul.Tensor", Ref(a), Ref(b)))
    assert fold_constants(graph) == graph


def test_a_state_written_from_parameters_is_written_at_every_call() -> None:
    s = Sketch()
    state, w = s.root("state", "count", 3), s.root("parameter", "w", 3)
    s.update(state, s.call("aten.exp.default", Ref(w)))
    graph = verify(fold_constants(s.graph()))
    assert [task.op for task in graph.tasks] == ["aten.copy_.default"]


def test_a_constant_nobody_reads_any_more_leaves_the_prologue() -> None:
    s = Sketch()
    w, x = s.root("parameter", "w", 3), s.root("input", "x", 3)
    a, b = (s.call(f"aten.{op}.default", Ref(w)) for op in ("exp", "sin"))
    s.call("aten.add.Tensor", Ref(x), Ref(a))
    used = s.call("aten.add.Tensor", Ref(x), Ref(b))
    folded = verify(fold_constants(s.graph(used)))
    graph = verify(remove_dead_tasks(folded))
    assert graph.prologue is not None
    assert [task.op for task in graph.prologue.tasks] == ["aten.sin.default"]
