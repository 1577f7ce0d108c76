"""Cross entropies in tasks of their own: forward, and the gradient from the logits again."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import nimble


def ops(engine):
    return [task.op for task in engine.plans[0].lowered.tasks]


class Head(nn.Module):
    """Logits of rows."""

    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(6, classes)

    def forward(self, x):
        return self.last(x)


def gradients(head, loss_fn, x, y):
    head.zero_grad()
    loss = loss_fn(head(x), y)
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in head.parameters()]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (7, 1), (16, 33), (300, 1000)])
def test_losses_and_gradients_are_eagers(rows, classes, reduction, workers):
    torch.manual_seed(0)
    head = Head(classes)
    x, y = 3 * torch.randn(rows, 6), torch.randint(0, classes, (rows,))
    if rows > 2:
        y[1::3] = -100

    def loss_fn(output, target):
        return functional.cross_entropy(output, target, reduction=reduction)

    expected, wanted = gradients(head, loss_fn, x, y)
    exact_head = Head(classes).double()
    exact_head.load_state_dict(head.state_dict())
    exact, right = gradients(exact_head, loss_fn, x.double(), y)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.0)
    step = nimble.compile_step(head, loss_fn, optimizer, (x, y), keep_grads=True, workers=workers)
    made = step(x, y)
    (engine,) = step.engines
    assert {"nimble.cross_entropy", "nimble.total_loss", "nimble.cross_entropy_gradient"} <= set(
        ops(engine)
    )
    assert not any("nll_loss" in op or "softmax" in op for op in ops(engine))
    assert abs(made - exact) <= 4 * abs(expected - exact) + 1e-6 * abs(exact)
    for parameter, theirs, exactly in zip(head.parameters(), wanted, right, strict=True):
        off, eagers_off = ((g - exactly).norm() for g in (parameter.grad, theirs))
        assert off <= 4 * eagers_off + 1e-6 * exactly.norm()


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda o, t: functional.cross_entropy(o, t, label_smoothing=0.1),
        lambda o, t: functional.cross_entropy(o, t, weight=torch.arange(1.0, 6.0)),
        lambda o, t: functional.cross_entropy(o, t, reduction="none").square().mean(),
        lambda o, t: functional.cross_entropy(o.T.reshape(1, 5, -1), t.reshape(1, -1)),
        lambda o, t: functional.nll_loss(functional.log_softmax(o, 0), t),
        lambda o, t: functional.cross_entropy(o, t) + functional.log_softmax(o, 1).square().mean(),
    ],
    ids=["smoothed", "weighted", "apart", "images", "other-dimension", "logarithms-used"],
)
def test_other_losses_are_eagers(loss_fn):
    torch.manual_seed(0)
    head = Head(5)
    x, y = torch.randn(12, 6), torch.randint(0, 5, (12,))
    expected, wanted = gradients(head, loss_fn, x, y)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.0)
    step = nimble.compile_step(head, loss_fn, optimizer, (x, y), keep_grads=True)
    torch.testing.assert_close(step(x, y), expected)
    for parameter, theirs in zip(head.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, theirs)


def test_nothing_counts():
    """The mean of nothing is NaN, and so is its gradient's factor; the rows are 0."""
    torch.manual_seed(0)
    head = Head(5)
    x, y = torch.randn(4, 6), torch.full((4,), -100)
    expected, wanted = gradients(head, functional.cross_entropy, x, y)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.0)
    step = nimble.compile_step(head, functional.cross_entropy, optimizer, (x, y), keep_grads=True)
    assert step(x, y).isnan()
    assert expected.isnan()
    for parameter, theirs in zip(head.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, theirs, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_logits_that_are_no_good(value):
    torch.manual_seed(0)
    bias = nn.Parameter(torch.randn(5))
    x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    x[2, 3] = value

    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = bias

        def forward(self, x):
            return x + self.bias

    shift = Shift()
    expected, (wanted,) = gradients(shift, functional.cross_entropy, x, y)
    optimizer = torch.optim.SGD(shift.parameters(), lr=0.0)
    step = nimble.compile_step(shift, functional.cross_entropy, optimizer, (x, y), keep_grads=True)
    torch.testing.assert_close(step(x, y), expected, equal_nan=True)
    torch.testing.assert_close(bias.grad, wanted, equal_nan=True)


def test_targets_out_of_range_are_told():
    head = Head(5)
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    step = nimble.compile_step(head, functional.cross_entropy, optimizer, (x, y))
    before = [p.detach().clone() for p in head.parameters()]
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            step(x, torch.tensor([0, wrong, 2, 3]))
    for parameter, old in zip(head.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old)


def test_in_an_inference():
    class Scored(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = Head(5)

        def forward(self, x, y):
            output = self.head(x)
            return functional.cross_entropy(output, y), output

    model = Scored().eval()
    x, y = torch.randn(4, 6), torch.tensor([0, 1, -100, 3])
    engine = nimble.compile(model, (x, y))
    assert "nimble.cross_entropy" in ops(engine)
    with torch.no_grad():
        for mine, theirs in zip(engine(x, y), model(x, y), strict=True):
            torch.testing.assert_close(mine, theirs)
