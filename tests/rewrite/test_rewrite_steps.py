"""All passes together: fewer tasks, the same numbers, the same sharing of memory."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
import torch
from reference import run
from sketch import Sketch
from torch import nn
from tracing import trace

from nimble.graph import Arg, DType, Graph, Ref, decode, encode, show, verify
from nimble.rewrite import rewrite


class Net(nn.Module):
    """A residual block with what a trace leaves behind: dropout, copies, equal expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
        )
        self.norm_one, self.norm_two = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(4, 5), nn.BatchNorm1d(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm_one(self.one(x.float())).relu()
        y = (self.norm_two(self.two(y)) + y.contiguous()).relu()
        pooled = y.mean((2, 3)) * 1
        scale = torch.arange(5).float() + 1
        return self.head(pooled) * scale, pooled.clone()


def test_what_each_step_did_is_told() -> None:
    net = Net().eval()
    x = torch.randn(2, 3, 6, 6)
    captured = trace(net, x)
    graph, steps = rewrite(captured.graph)
    verify(graph)
    assert [step.name for step in steps] == [
        "remove dead tasks",
        "remove noops",
        "free fills",
        "merge subexpressions",
        "fold constants",
        "fold batch norm",
        "remove dead tasks",
        "update in place",
        "straighten attention",
    ]
    assert steps[0].tasks_before == len(captured.graph.tasks)
    assert steps[-1].tasks_after == len(graph.tasks)
    fold = steps[5]
    assert fold.tasks_before - fold.tasks_after == 3
    assert fold.detail.startswith("3 fewer aten._native_batch_norm_legit_no_training.default")
    assert steps[-1].detail == ""
    with torch.no_grad():
        for got, expected in zip(run(graph, captured.tensors, [x]), net(x), strict=True):
            torch.testing.assert_close(got, expected)


def test_nothing_is_left_for_a_second_time() -> None:
    graph, _ = rewrite(trace(Net().eval(), torch.randn(2, 3, 6, 6)).graph)
    assert rewrite(graph)[0] == graph


def test_training_steps_keep_their_updates() -> None:
    net, x = Net().train(), torch.randn(2, 3, 6, 6)
    captured = trace(net, x)
    graph, _ = rewrite(captured.graph)
    held = [{n: t.detach().clone() for n, t in captured.tensors.items()} for _ in range(2)]
    results = []
    for tensors, version in zip(held, (captured.graph, graph), strict=True):
        torch.manual_seed(0)
        results.append(run(version, tensors, [x]))
    for got, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    for name, tensor in held[0].items():
        torch.testing.assert_close(held[1][name], tensor, rtol=0, atol=0)
    assert not torch.equal(held[1]["norm_one.running_mean"], torch.zeros(4))


def program(seed: int) -> Graph:
    """A random program on 2x2 matrices: copies, views, draws, updates, some of them returned."""
    chance = random.Random(seed)
    s = Sketch()
    token = s.root("state", "rng", dtype="token")
    state = s.root("state", "state", 2, 2)
    live = [s.root("input", "x", 2, 2), s.root("parameter", "w", 2, 2), state]
    live.append(s.root("constant", "c", 2, 2))
    for _ in range(chance.randrange(3, 16)):
        a, b = Ref(chance.choice(live)), Ref(chance.choice(live))
        numbers: list[Arg] = [0, 0.0, -0.0, 1, 1.0, 2.0]
        match chance.randrange(9):
            case 0 | 1:
                op = chance.choice(["sin", "relu", "clone", "lift_fresh_copy"])
                live.append(s.call(f"aten.{op}.default", a))
            case 2:
                live.append(s.call("aten._to_copy.default", a, dtype=DType.FLOAT32))
            case 3:
                op = chance.choice(["add", "sub", "mul"])
                live.append(s.call(f"aten.{op}.Tensor", a, chance.choice(numbers)))
            case 4:
                live.append(s.call("aten.maximum.default", a, b))
            case 5:
                live.append(s.transpose(a.id))
            case 6:
                live.append(s.call("aten.full.default", (2, 2), 0.5))
            case 7:
                drawn, token = s.draw(token, "aten.bernoulli.p", a, 0.5)
                live.append(drawn)
            case 8 if s.edit.values[a.id].role == "intermediate":
                live = [v for v in live if s.edit.content(v).id != state]
                state = s.update(state, a.id)
                live.append(state)
    return s.graph(*(chance.choice(live) for _ in range(chance.randrange(1, 4))))


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_random_programs_keep_their_numbers_updates_and_sharing(start: int) -> None:
    for seed in range(start, start + 100):
        before = program(seed)
        after = verify(rewrite(before)[0])
        seen = []
        for graph in (before, after):
            torch.manual_seed(seed)
            tensors = {name: torch.randn(2, 2) for name in ("w", "c", "state")}
            x = torch.randn(2, 2)
            outputs = run(graph, tensors, [x])
            seen.append((outputs, [x, *tensors.values()]))
        (expected, owned), (got, owned_after) = seen
        told = f"seed {seed}\n{show(before)}\n{show(after)}"
        for one, other in zip((*expected, *owned), (*got, *owned_after), strict=True):
            assert torch.equal(one, other), told
            assert one.stride() == other.stride(), told
        assert shared((*expected, *owned)) == shared((*got, *owned_after)), told


def shared(tensors: tuple[torch.Tensor, ...]) -> list[bool]:
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [one == other for one, other in combinations(storages, 2)]


def test_a_rewritten_graph_can_be_saved() -> None:
    graph, _ = rewrite(trace(Net().eval(), torch.randn(2, 3, 6, 6)).graph)
    assert decode(encode(graph)) == graph
