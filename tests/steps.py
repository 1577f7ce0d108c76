"""A small network with a bit of everything, trained in eager: what steps are compared with."""

import copy

import torch
from torch import nn

OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.05),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "dampened": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.8, dampening=0.3, maximize=True),
    "nesterov": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-2, weight_decay=1e-2),
    "amsgrad": lambda ps: torch.optim.Adam(ps, lr=1e-2, amsgrad=True, maximize=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-2),
}

OTHERS = {
    "adadelta": lambda ps: torch.optim.Adadelta(ps, lr=0.5),
    "adagrad": lambda ps: torch.optim.Adagrad(
        ps, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1
    ),
    "adamax": lambda ps: torch.optim.Adamax(ps, lr=0.02, maximize=True),
    "asgd": lambda ps: torch.optim.ASGD(ps, lr=0.05, t0=5),
    "nadam": lambda ps: torch.optim.NAdam(ps, decoupled_weight_decay=True, weight_decay=0.1),
    "radam": lambda ps: torch.optim.RAdam(ps, lr=0.01),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, momentum=0.9, centered=True),
    "rprop": lambda ps: torch.optim.Rprop(ps, lr=0.01),
}
"""Those without a rule of their own, whose code is captured."""


class Net(nn.Module):
    """Branches, a norm with statistics, a weight used twice, and one that is not used."""

    def __init__(self, dropout=0.0, activation=nn.functional.relu):
        super().__init__()
        self.activation = activation
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 8, 1)
        self.unused = nn.Linear(2, 2)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.activation(self.norm(self.first(x)))
        x = self.left(x).sigmoid() * x + self.left(x * 0.5)
        return self.last(self.drop(x.mean((2, 3))))


def pair(dtype=torch.float64, **kwargs):
    torch.manual_seed(0)
    model = Net(**kwargs).to(dtype)
    return model, copy.deepcopy(model)


def batches(count, dtype=torch.float64, size=4):
    torch.manual_seed(1)
    return [
        (torch.randn(size, 3, 6, 6, dtype=dtype), torch.randint(0, 4, (size,)))
        for _ in range(count)
    ]


def eager_step(model, optimizer, x, y, loss_fn=nn.functional.cross_entropy, clip=None):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    if clip is not None:
        clip(model.parameters())
    optimizer.step()
    return loss.detach()


def assert_same(mine, theirs, tolerance=1e-9):
    for (name, a), b in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same_state(mine, theirs, tolerance=1e-9):
    mine, theirs = mine.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    assert mine["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        assert state.keys() == mine["state"][number].keys()
        for key, value in state.items():
            if value is not None:
                torch.testing.assert_close(
                    mine["state"][number][key], value, rtol=tolerance, atol=tolerance
                )
