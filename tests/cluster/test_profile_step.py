"""Engine → profile: bytes and order of a captured step are exact."""

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from nimble import zoo
from nimble.cli.main import app
from nimble.cluster.profile import read_profiles
from nimble.cluster.profiles import find_profile
from nimble.devices.sim import find_gpu
from nimble.errors import NimbleError
from nimble.profiling import profile_step


class Chain(nn.Module):
    """Gradients become ready from the last layer to the first."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(),
                                    nn.Linear(32, 4))  # fmt: skip
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.layers(x)


def profiled(model, batch, bucket_bytes=1, optimizer=torch.optim.SGD):
    chosen = optimizer(model.parameters(), lr=0.1)
    return profile_step(model, nn.functional.mse_loss, chosen, batch, "chain", find_gpu("v100"),
                        bucket_bytes)  # fmt: skip


def batch(rows=5):
    return torch.randn(rows, 8), torch.randn(rows, 4)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_bytes_are_exact_and_the_last_layer_comes_first(optimizer):
    found = profiled(Chain(), batch(), optimizer=optimizer)
    layers = [4 * count for count in (32 * 4, 4, 16 * 32, 32, 8 * 16, 16)]
    assert found.bytes == sum(layers), "parameters that the loss does not reach are not sent"
    assert sorted(found.buckets) == sorted(layers)
    # Weight and bias of a layer are ready together; layers in the reverse of the forward's order.
    for place in range(0, 6, 2):
        assert sorted(found.buckets[place : place + 2]) == sorted(layers[place : place + 2])
    assert found.skew == max(layers) / sum(layers)


def test_frozen_parameters_are_not_sent():
    model = Chain()
    model.layers[0].requires_grad_(False)
    assert profiled(model, batch()).bytes == 4 * (32 * 4 + 4 + 16 * 32 + 32)


def test_a_parameter_used_twice_is_sent_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8, bias=False)

        def forward(self, x):
            return self.inner(self.inner(x))

    found = profiled(Tied(), (torch.randn(3, 8), torch.randn(3, 8)))
    assert found.buckets == (4 * 64,)
    assert found.overlap == 0, "one bucket is full when the last gradient is ready"


def test_small_buckets_leave_more_time_to_overlap():
    model, rows = Chain(), batch()
    one, many = profiled(model, rows, 1 << 20), profiled(model, rows, 1)
    assert len(one.buckets) == 1
    assert one.overlap == 0 < many.overlap < 1
    assert one.compute_s == many.compute_s > 0


def test_a_loss_that_needs_no_gradient_is_refused():
    model = Chain().requires_grad_(False)
    with pytest.raises(NimbleError, match=r"no parameter|no gradients|optimizer"):
        profiled(model, batch())


def run(tmp_path, network):
    path = tmp_path / "profile.json"
    result = CliRunner().invoke(app, ["profile", network, "--json", str(path)])
    assert result.exit_code == 0, result.output
    (found,) = read_profiles(path)
    return found


def test_the_command_writes_a_profile(tmp_path):
    found = run(tmp_path, "mlp@64x3")
    model, _ = zoo.build("mlp")
    assert found.bytes == sum(4 * p.numel() for p in model.parameters())
    assert found.name == "mlp@64x3"
    assert "predicted for a" in found.source


@pytest.mark.full
def test_a_captured_resnet_has_the_buckets_counted_from_the_architecture(tmp_path):
    found, counted = run(tmp_path, "resnet50@64x2"), find_profile("resnet50")
    assert found.bytes == counted.bytes
    # The last layer's weight is ready before its bias; a registration order has it after.
    assert found.buckets[0] == counted.buckets[0] - 4_000
    assert found.buckets[2:] == counted.buckets[2:]
    assert found.skew == pytest.approx(counted.skew, abs=1e-4)
    assert 0 < found.overlap < 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["resnet5"], "resnet5"),
        (["mlp", "--train", "sgdd"], "expected one of sgd, adam, adamw"),
        (["mlp", "--gpu", "abacus"], "abacus"),
        (["mlp", "--bucket-mb", "0"], "expected more than 0"),
    ],
)
def test_what_cannot_be_profiled_is_refused(options, said):
    result = CliRunner().invoke(app, ["profile", *options])
    assert result.exit_code == 1
    assert said in result.output
