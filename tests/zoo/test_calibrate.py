"""`zoo.calibrate`: statistics for batch norms of models that were never trained."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nimble import zoo


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(10)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 4 * 4, 4))


def sensitivity(model: nn.Module, image: Tensor) -> float:
    with torch.no_grad():
        a, b = model(image), model(zoo.random_like(image, seed=9))
    return float((a - b).abs().max() / a.abs().max())


def test_outputs_depend_on_inputs_afterwards() -> None:
    model, image = deep().eval(), torch.randn(1, 8, 24, 24)
    assert sensitivity(model, image) < 1e-2
    zoo.calibrate(model, (image,))
    assert sensitivity(model, image) > 1e-1


def test_statistics_are_those_of_the_data() -> None:
    norm = nn.BatchNorm1d(3)
    zoo.calibrate(nn.Sequential(Shifted(), norm), (torch.randn(1000, 3),))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, torch.full((3,), 5.0), atol=0.2, rtol=0)
    torch.testing.assert_close(norm.running_var, torch.full((3,), 4.0), atol=0.4, rtol=0)


class Shifted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x + 5


def test_one_value_per_channel_is_enough() -> None:
    """Training mode refuses it, and from few values activations would grow layer by layer."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()) for _ in range(20)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(1, 64)
    zoo.calibrate(model, (x,))
    with torch.no_grad():
        assert 0.1 < model(x).abs().max() < 100


def test_modes_and_other_buffers_are_as_before() -> None:
    model = nn.Sequential(Counting(), nn.BatchNorm1d(4), nn.Dropout())
    model[2].eval()
    x = torch.randn(2, 4)
    state = torch.get_rng_state()
    zoo.calibrate(model, (x,))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == [True, True, True, False]
    assert model[0].get_buffer("calls") == 0
    assert not any(m._forward_pre_hooks for m in model.modules())


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + torch.rand_like(x)


def test_modes_are_restored_when_the_model_fails() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(5, 4))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        zoo.calibrate(model, (torch.randn(2, 4),))
    assert model.training
    assert not model[0]._forward_pre_hooks


def test_model_without_batch_norm_is_not_run() -> None:
    model = nn.Sequential(Counting(), nn.BatchNorm1d(4, track_running_stats=False))
    zoo.calibrate(model, ("no tensor",))


def test_keywords_and_integer_inputs_are_varied_within_range() -> None:
    args, kwargs = zoo.random_like(
        ((torch.tensor([3, 0, 2]),), {"mask": torch.tensor([True]), "scale": torch.ones(2), "n": 7})
    )
    assert args[0].min() >= 0
    assert args[0].max() <= 3
    assert args[0].dtype == torch.int64
    assert torch.equal(kwargs["mask"], torch.tensor([True]))
    assert not torch.equal(kwargs["scale"], torch.ones(2))
    assert kwargs["n"] == 7
