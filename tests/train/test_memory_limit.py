"""Steps within less memory than they would take: activations are computed again."""

import copy

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import MemoryLimitError

NETWORKS = {
    "convolutions": lambda: nn.Sequential(
        *(
            layer
            for inside in (3, 16, 16, 16, 16, 16)
            for layer in (nn.Conv2d(inside, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        ),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    ),
    "linear": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(768, 256),
        *(layer for _ in range(6) for layer in (nn.GELU(), nn.Linear(256, 256), nn.LayerNorm(256))),
        nn.Linear(256, 4),
    ),
    "dropout": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(768, 256),
        nn.Dropout(0.3),
        *(layer for _ in range(6) for layer in (nn.SiLU(), nn.Linear(256, 256))),
        nn.Linear(256, 4),
    ),
    "attention": lambda: nn.Sequential(
        nn.Flatten(0, 1),
        nn.Linear(16, 32),
        *(nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True) for _ in range(3)),
        nn.Flatten(),
        nn.Linear(512, 4),
        nn.Unflatten(0, (-1, 3)),
        nn.Flatten(),
        nn.Linear(12, 4),
    ),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_sixty_per_cent_of_the_arena_are_enough(name, workers, monkeypatch):
    monkeypatch.setenv("NIMBLE_VERIFY", "1")
    torch.manual_seed(0)
    first = NETWORKS[name]()
    models = [first, copy.deepcopy(first)]
    size = 1024 if name in ("linear", "dropout") else 64
    x, y = torch.randn(size, 3, 16, 16), torch.randint(0, 4, (size,))
    steps = []
    limit = None
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        steps.append(
            nimble.compile_step(
                model,
                nn.CrossEntropyLoss(),
                optimizer,
                (x, y),
                workers=workers,
                memory_limit=limit,
                tune="off",
            )
        )
        limit = steps[0].engines[0].plans[0].schedule.arena_bytes * 6 // 10
    plan = steps[1].engines[0].plans[0]
    assert plan.schedule.arena_bytes <= limit
    assert "run twice to keep the memory limit" in plan.choice
    assert "run twice" in steps[1].explain()
    for _ in range(3):
        losses = []
        for step in steps:
            torch.manual_seed(3)
            losses.append(step(x, y))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(*(m.state_dict().values() for m in models), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_what_no_recomputation_can_fit_is_told():
    model = NETWORKS["linear"]()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    x, y = torch.randn(64, 3, 16, 16), torch.randint(0, 4, (64,))
    with pytest.raises(MemoryLimitError, match="memory_limit=1000") as told:
        nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y), memory_limit=1000)
    limit = told.value.smallest
    assert f"run twice the smallest found takes {limit}" in str(told.value)
    nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y), memory_limit=limit)
