"""Results that are seen in another shape before the chain that follows them, or that lie between
others."""

import pytest
import torch
import torch.nn.functional as F
from lowered import agree
from torch import nn

FIVE = torch.randn(5)
PRODUCERS = {
    "matmul": (lambda x: x @ x.transpose(-1, -2), (2, 3, 6)),
    "matmul of one column": (lambda x: x @ x[..., :1, :].transpose(-1, -2), (2, 3, 6)),
    "product": (lambda x: x @ x.t(), (3, 6)),
    "linear": (nn.Linear(6, 4), (2, 3, 6)),
    "linear, many rows": (nn.Linear(6, 4), (5, 8, 6)),
    "linear to one": (nn.Linear(6, 1), (2, 3, 6)),
    "convolution": (nn.Conv2d(6, 4, 3, padding=1), (2, 6, 5, 7)),
    "convolution to one": (nn.Conv2d(6, 1, 3, padding=1), (2, 6, 5, 7)),
    "convolution to one column": (nn.Conv2d(6, 1, 3, padding=(1, 0)), (2, 6, 20, 3)),
    "sequence to one": (nn.Conv1d(6, 1, 3, padding=1), (2, 6, 7)),
    "depthwise": (nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 7)),
    "layer norm": (nn.LayerNorm(6), (2, 3, 6)),
    "rms norm": (lambda x: F.rms_norm(x, (6,)), (2, 3, 6)),
    "group norm": (nn.GroupNorm(2, 4), (2, 4, 5, 7)),
}
CHAINS = {
    "a dimension more": lambda y: y[..., None].tanh() * FIVE,
    "a dimension more, nothing broadcast": lambda y: y[..., None].relu() * 2,
    "flat": lambda y: y.flatten().tanh()[:, None] * FIVE,
    "flat but for rows": lambda y: y.flatten(1).tanh() + y.flatten(1)[:1].cos(),
    "no dimensions of one": lambda y: y.squeeze().tanh() * y.squeeze().abs().sum(),
    "rows and columns exchanged": lambda y: (
        y.reshape(*y.shape[:-2], y.shape[-1], y.shape[-2]).relu() + 1
    ),
    "rows one by one": lambda y: y.reshape(-1, 1, y.shape[-1]).tanh() * y.shape[-1],
    "first in front": lambda y: y[None].sigmoid() * FIVE[:2].view(2, *(1,) * y.dim()),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_chain_on_another_shape(producer, chain):
    make, shape = PRODUCERS[producer]
    agree(lambda x: CHAINS[chain](make(x)), torch.randn(shape))


def test_a_chain_on_other_batches_stays_with_its_product():
    lowered, _ = agree(lambda x: (x @ x.mT).view(2, 2, 3, 3).relu(), torch.randn(4, 3, 6))
    assert [task.op for task in lowered.tasks] == ["nimble.matmul"]


RECURRENT = nn.LSTM(36, 8, batch_first=True)
READERS = {
    "linear": nn.Linear(36, 20),
    "attention": lambda y: F.scaled_dot_product_attention(*(y.view(len(y), 1, 6, 6),) * 3),
    "recurrent": lambda y: RECURRENT(y)[0],
    "softmax": lambda y: y.softmax(-1),
    "norm": nn.LayerNorm(36),
    "products": lambda y: y.mT @ y,
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("reader", READERS)
def test_every_third_number(reader, batch):
    """What an image of one channel holds lies between others where it was concatenated."""
    images = nn.Conv1d(6, 1, 3, padding=1)

    def model(x):
        y = images(x)
        return torch.cat([y, y.cos(), y.tanh()], 1).softmax(-1), READERS[reader](y).tanh()

    torch.manual_seed(0)
    agree(model, torch.randn(batch, 6, 36))
