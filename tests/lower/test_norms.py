"""Norms after convolutions: along channels that lie innermost, and along rows that then do not."""

import pytest
import torch
from torch import nn

import nimble


class Turned(nn.Module):
    """As in ConvNeXt: channels last for the norm, and first again."""

    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(8, 8, 3, padding=1), norm, nn.Conv2d(8, 4, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


def after_convolution(*layers):
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), *layers)


NATIVE = {
    "rows, rms": after_convolution(nn.RMSNorm(12)),
    "rows of a sequence, rms": nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.RMSNorm(12)),
    "rows, rms, after a chain": after_convolution(nn.ReLU(), nn.RMSNorm(12), nn.Tanh()),
    "rows, rms, after pooling": after_convolution(nn.MaxPool2d((2, 1)), nn.RMSNorm(12)),
    "rows": after_convolution(nn.LayerNorm(12)),
    "channels": Turned(nn.LayerNorm(8)),
    "channels, rms": Turned(nn.RMSNorm(8)),
    "images, then groups": after_convolution(nn.InstanceNorm2d(8), nn.GroupNorm(4, 8)),
    "groups, twice": after_convolution(nn.GroupNorm(4, 8), nn.ReLU(), nn.GroupNorm(1, 8)),
}
BY_ATEN = {
    "rows of channels": Turned(nn.LayerNorm((12, 8))),
    "images": Turned(nn.LayerNorm((10, 12, 8))),
}


@pytest.mark.parametrize("tune", ["off", "fast"])
@pytest.mark.parametrize("name", [*NATIVE, *BY_ATEN])
def test_norms_after_convolutions(name, tune):
    torch.manual_seed(0)
    model = {**NATIVE, **BY_ATEN}[name].eval()
    x = torch.randn((2, 8, 12) if "sequence" in name else (2, 8, 10, 12))
    engine = nimble.compile(model, (x,), tune=tune)
    with torch.no_grad():
        torch.testing.assert_close(engine(x), model(x), rtol=1e-4, atol=1e-5)
    by_aten = [t.op for t in engine.plans[0].graph.tasks if t.kernel != "native"]
    # The norm of one image each is PyTorch's, as a batch norm of that many channels.
    allowed = ("layer_norm",) if name in BY_ATEN else ("_native_batch_norm",)
    assert all(any(a in op for a in allowed) for op in by_aten), by_aten


def test_the_norm_of_a_scalar():
    def model(x):
        y = (x * x).sum()
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)

    x = torch.randn(6)
    torch.testing.assert_close(nimble.compile(model, (x,))(x), model(x))


def test_a_result_that_nobody_reads_may_lie_as_its_operator_likes():
    x = torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.LogSigmoid(), nn.Softsign())
    torch.testing.assert_close(nimble.compile(model, (x,))(x), model(x))
