"""What a dropout draws is kept as truth values."""

import copy

import pytest
import torch
from torch import nn

import nimble
from nimble.graph import DType
from nimble.lower.draws import keep_draws_small

NETWORKS = {
    "once": lambda: nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.Linear(32, 4)),
    "twice": lambda: nn.Sequential(
        nn.Linear(16, 32), nn.Dropout(0.1), nn.GELU(), nn.Dropout(0.7), nn.Linear(32, 4)
    ),
    "images": lambda: nn.Sequential(
        nn.Unflatten(1, (4, 2, 2)),
        nn.Conv2d(4, 8, 1),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(32, 4),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 8)),
        nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True),
        nn.Flatten(),
        nn.Linear(16, 4),
    ),
}


def made(network):
    torch.manual_seed(0)
    mine = network()
    theirs = copy.deepcopy(mine)
    optimizer, reference = (torch.optim.SGD(m.parameters(), 0.1) for m in (mine, theirs))
    x, y = torch.randn(6, 16), torch.randn(6, 4)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y), tune="off")
    return mine, theirs, reference, step, x, y


@pytest.mark.parametrize("name", NETWORKS)
def test_draws_are_bytes_and_those_of_eager(name):
    mine, theirs, reference, step, x, y = made(NETWORKS[name])
    graph = step.engines[0].plans[0].graph
    draws = [task for task in graph.tasks if task.op == "aten.bernoulli.p"]
    assert draws
    assert all(graph[task.writes[0]].dtype is DType.BOOL for task in draws)
    torch.manual_seed(3)
    losses = [step(x, y) for _ in range(4)]
    torch.manual_seed(3)
    for loss in losses:
        reference.zero_grad()
        expected = nn.functional.mse_loss(theirs(x), y)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach())
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3e38, -1.0])
def test_what_is_dropped_is_what_eager_makes_of_it(value):
    """Times 0, even where that is not 0; and times 1 / (1 - p), rounded once."""

    class Times(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((64,), value))

        def forward(self, x):
            return nn.functional.dropout(self.weight * x, 0.3)

    model = Times()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)

    def loss_fn(out, _):
        return out.sum(), out

    x = torch.ones(64)
    step = nimble.compile_step(model, loss_fn, optimizer, (x, x), tune="off")
    torch.manual_seed(1)
    _, got = step(x, x)
    torch.manual_seed(1)
    expected = model(x).detach()
    assert torch.equal(got.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))
    assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])


def test_draws_that_are_seen_otherwise_stay_numbers():
    class Shown(nn.Module):
        def __init__(self, show):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.show = show

        def forward(self, x):
            noise = torch.empty_like(x).bernoulli_(0.5)
            scaled = noise / 0.5
            made = self.linear(x) * scaled
            seen = {"draw": noise, "noise": scaled, "turned": scaled * scaled.t()}
            return (made * scaled).sum() + seen[self.show].sum()

    for show in ("draw", "noise", "turned"):
        model = Shown(show)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = nimble.compile_step(
            model, lambda out, _: out, optimizer, (torch.ones(4, 4), None), tune="off"
        )
        graph = step.graph(torch.ones(4, 4), None)
        assert keep_draws_small(graph) is graph
