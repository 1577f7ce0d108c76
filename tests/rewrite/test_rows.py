"""Rows of a batch are proven independent, or the task that may mix them is named."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import run
from sketch import Sketch
from torch import Tensor, nn
from tracing import trace

from nimble.graph import Graph, Ref, Role, show
from nimble.rewrite import dependent_rows, rewrite

B = 3


def why(model: Callable[..., Any], *args: Tensor) -> str | None:
    """What is said of a captured model; the same must be said of it rewritten."""
    graph = trace(model, *args).graph
    said = dependent_rows(graph, B)
    assert dependent_rows(rewrite(graph)[0], B) == said
    return said


class Lstm(nn.Module):
    """An unrolled cell whose first state is made of zeros for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(3, 16), nn.Linear(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.zeros(B, 4), x.new_zeros(B, 4)
        for t in range(x.shape[1]):
            i, f, g, o = (self.of_input(x[:, t]) + self.of_state(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Attention(nn.Module):
    """Heads merged with the batch, by products of matrices, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 8)), nn.Embedding(9, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(B, 1, 8), x], 1)
        x = x + self.place(torch.arange(x.shape[1]).expand(B, -1))
        length = x.shape[1]
        q, k, v = (
            part.reshape(B, length, 2, 4).transpose(1, 2).reshape(B * 2, length, 4)
            for part in self.qkv(x).chunk(3, -1)
        )
        score = torch.bmm(q, k.transpose(1, 2)).masked_fill(
            torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf")
        )
        y = torch.bmm(score.softmax(-1), v).reshape(B, 2, length, 4).transpose(1, 2)
        return F.layer_norm(self.out(y.reshape(B, length, 8)) + x, (8,))


LINEAR, SQUARE, OWN = nn.Linear(4, 4), nn.Linear(B, B), nn.Parameter(torch.ones(B, 1))
RECURRENT = nn.LSTM(3, 4, batch_first=True).eval()
CONVOLUTIONAL = nn.Sequential(
    nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU6(), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, B), nn.Softmax(1),
).eval()  # fmt: skip


def reduced(x: Tensor) -> Tensor:
    return x - x.mean((1, 2), keepdim=True) + x.amax(2, keepdim=True) * x.var(1, keepdim=True)


def rows_inside(x: Tensor) -> Tensor:
    """[time, row, channel], the first two merged, so that rows repeat with every time step."""
    y: Tensor = LINEAR(x.transpose(0, 1).reshape(-1, 4))
    return y.view(-1, B, 4).transpose(0, 1)


def written_in_parts(x: Tensor) -> Tensor:
    y = torch.zeros(B, 6)
    y[:, 1:5] = x
    y[:, 0] = 1
    return y


INDEPENDENT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "convolutional": (CONVOLUTIONAL, (B, 2, 9, 9)),
    "transposed convolution": (nn.ConvTranspose1d(2, 4, 3), (B, 2, 5)),
    "attention": (Attention(), (B, 4, 8)),
    "recurrent": (Lstm(), (B, 5, 3)),
    "recurrent, one op": (lambda x: RECURRENT(x)[0], (B, 5, 3)),
    "time and rows merged": (lambda x: LINEAR(x.reshape(-1, 4)).view(B, 6, 4), (B, 6, 4)),
    "rows last": (lambda x: x.permute(1, 2, 0).contiguous().exp().permute(2, 0, 1), (B, 4, 5)),
    "rows inside": (rows_inside, (B, 5, 4)),
    "reductions of other dimensions": (reduced, (B, 4, 5)),
    "written in parts": (written_in_parts, (B, 4)),
    "sorted": (lambda x: (x.sort(1)[0] + x.topk(4, 1)[1]).cumsum(1).flip(1), (B, 4)),
    "gathered": (lambda x: x.gather(1, x.argsort(1)) + x[:, torch.tensor([1, 0, 2, 2])], (B, 4)),
    "padded": (lambda x: F.pad(F.pad(x, (1, 1), mode="reflect"), (0, 1, 2, 0)), (B, 4, 5)),
    "interpolated": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (B, 2, 4, 4)),
    "batched products": (lambda x: torch.einsum("bij,bkj->bik", x, x), (B, 4, 4)),
    "square as the batch": (lambda x: SQUARE(x).softmax(1), (B, B)),
    "no input at all": (lambda x: torch.zeros(B, 2) + torch.arange(2), (B,)),
}


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_independent_rows_are_proven(kind: str) -> None:
    model, shape = INDEPENDENT[kind]
    assert why(model, torch.ones(shape)) is None


def test_embeddings_are_looked_up_row_by_row() -> None:
    table = nn.Embedding(9, 4)
    assert why(lambda i: table(i) + table.weight[i], torch.ones(B, 5, dtype=torch.int64)) is None


DEPENDENT: dict[str, tuple[Callable[..., Any], str]] = {
    "softmax over rows": (lambda x: x.softmax(0), "_softmax"),
    "mean of all": (lambda x: x - x.mean(), "mean"),
    "sum of rows": (lambda x: x + x.sum(0), "sum"),
    "cumulative": (lambda x: x.cumsum(0), "cumsum"),
    "reversed": (lambda x: x.flip(0), "flip"),
    "picked": (lambda x: x[torch.tensor([2, 1, 0])], "index"),
    "first row": (lambda x: x + x[:1], "add"),
    "all but one": (lambda x: F.pad(x[1:].exp(), (0, 0, 0, 1)), "exp"),
    "every other": (lambda x: torch.cat([x[::2], x[1:2]]), "cat"),
    "rows by rows": (lambda x: x @ x.t(), "mm"),
    "transposed": (lambda x: x + x.t(), "add"),
    "numbered": (lambda x: x + torch.arange(B)[:, None], "add"),
    "of its own": (lambda x: x * OWN, "mul"),
    "flattened": (lambda x: x.reshape(-1).cumsum(0).view(B, B), "cumsum"),
    "joined": (lambda x: torch.cat([x, x])[:B], "cat"),
    "batch statistics": (nn.BatchNorm1d(B, track_running_stats=False), "_native_batch_norm"),
    "shifted": (lambda x: x.roll(1, 0), "roll"),
    "unknown": (lambda x: torch.linalg.inv_ex(x)[0], "linalg_inv_ex"),
}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_the_first_task_that_may_mix_rows_is_named(kind: str) -> None:
    model, task = DEPENDENT[kind]
    said = why(model, torch.ones(B, B))
    assert said is not None
    assert said.startswith(f"task {task}"), said


def test_outputs_must_hold_one_row_for_each() -> None:
    said = why(lambda x: x.t(), torch.ones(B, 4))
    assert said is not None
    assert said.startswith("output")
    assert "float32[4,3](1,4)" in said
    assert why(lambda x: (x * 2)[None], torch.ones(B, 4)) is not None
    assert why(lambda x: (x * 2, torch.arange(4)), torch.ones(B, 4)) is not None


def test_unused_mixtures_do_not_matter() -> None:
    graph = trace(lambda x: (x * 2, x.sum())[0], torch.ones(B, 4)).graph
    assert dependent_rows(graph, B) is None


def test_random_numbers_and_updates_prevent_the_proof() -> None:
    said = why(nn.Dropout().train(), torch.ones(B, 4))
    assert said is not None
    assert "draws random numbers" in said

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count: Tensor
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x * 2

    said = why(Counter(), torch.ones(B, 4))
    assert said is not None
    assert "update.count" in said


def test_one_row_proves_nothing() -> None:
    graph = trace(nn.ReLU(), torch.ones(1, 4)).graph
    assert "batch of 1" in str(dependent_rows(graph, 1))


def program(seed: int) -> Graph:
    """A random program on matrices and boxes, some sizes of which are that of the batch."""
    chance = random.Random(seed)
    s = Sketch()
    live = [s.root("input", "x", B, 2, 4, dtype="float64")]
    shapes = [(4,), (2, 4), (4, B), (B, 2), (B, 1, 1), (4, 4), (8, 4), (B, 4, 2), (B, 2, 4)]
    weights = [s.root("parameter", f"w{i}", *n, dtype="float64") for i, n in enumerate(shapes)]
    for _ in range(chance.randrange(1, 9)):
        a = chance.choice(live[-4:])
        b = chance.choice([*live, *weights])
        value = s.edit.values[a]
        rank = len(value.shape)
        dim = chance.randrange(rank) if rank else 0
        with contextlib.suppress(RuntimeError, IndexError):
            match chance.randrange(12):
                case 0:
                    live.append(s.call("aten.tanh.default", Ref(a)))
                case 1 | 2:
                    op = chance.choice(["add", "mul", "sub"])
                    live.append(s.call(f"aten.{op}.Tensor", Ref(a), Ref(b)))
                case 3:
                    order = chance.sample(range(rank), rank)
                    shape, strides = value.shape, value.strides
                    live.append(
                        s.view(a, tuple(shape[d] for d in order), tuple(strides[d] for d in order))
                    )
                case 4:
                    live.append(s.call("aten.mm.default", Ref(a), Ref(b)))
                case 5:
                    live.append(s.call("aten.bmm.default", Ref(a), Ref(b)))
                case 6:
                    live.append(s.call("aten._softmax.default", Ref(a), dim, False))
                case 7:
                    live.append(
                        s.call("aten.sum.dim_IntList", Ref(a), (dim,), chance.random() < 0.5)
                    )
                case 8:
                    live.append(s.call("aten.cat.default", (Ref(a), Ref(b)), dim))
                case 9 | 10:
                    # Contiguous, and then seen in another shape of as many elements.
                    copy = s.call("aten._to_copy.default", Ref(a)) if chance.random() < 0.5 else a
                    live.append(reshaped(s, copy, chance))
                case 11 if rank and value.shape[dim] > 1:
                    live.append(s.call("aten.index_select.default", Ref(a), dim, Ref(order_of(s))))
    outputs = [v for v in live[1:] if s.edit.values[v].shape[:1] == (B,)]
    return s.graph(outputs[-1] if outputs else live[-1])


def reshaped(s: Sketch, v: int, chance: random.Random) -> int:
    """The same elements in another shape, as a view wherever PyTorch can make one."""
    value = s.edit.values[v]
    shapes = [n for n in ((B, 8), (B * 2, 4), (8, B), (B, 2, 4), (4, 2 * B), (2, B, 4), (4, B, 2))
              if value.numel == 24]  # fmt: skip
    tensor = torch.empty_strided(value.shape, value.strides).view(chance.choice(shapes))
    return s.view(v, tuple(tensor.shape), tensor.stride())


def order_of(s: Sketch) -> int:
    return s.root("parameter", "order", 2, dtype="int64")


def test_of_random_programs_proven_rows_are_independent() -> None:
    proven = 0
    for seed in range(300):
        graph = program(seed)
        if dependent_rows(graph, B) is not None:
            continue
        proven += bool(graph.tasks)
        torch.manual_seed(seed)
        tensors = {
            v.name: torch.randn(v.shape, dtype=torch.float64)
            if v.dtype == "float64"
            else torch.tensor([1, 0])
            for v in graph.roots(Role.PARAMETER)
        }
        x, other = (torch.randn(B, 2, 4, dtype=torch.float64) for _ in range(2))
        order = [2, 0, 1]
        other[1] = x[1]
        expected, permuted, changed = (
            run(graph, tensors, [given])[0] for given in (x, x[order], other)
        )
        assert torch.allclose(permuted, expected[order]), f"seed {seed}\n{show(graph)}"
        assert torch.allclose(changed[1], expected[1]), f"seed {seed}\n{show(graph)}"
    assert proven > 100
