"""What a network has to do at least."""

import pytest
import torch

from nimble.bench.limits import Peaks, Work
from nimble.bench.verify import Exam
from nimble.targets import Made, make


def work(made):
    return Work.of(made, Exam.of(made))


def test_a_matrix_product_is_counted():
    layer = torch.nn.Linear(16, 32, bias=False)
    found = work(Made("layer", layer, (torch.randn(4, 16),), {}))
    assert found == Work(flops=2 * 4 * 16 * 32, bytes=4 * (16 * 32 + 4 * 16 + 4 * 32))


def test_attention_is_counted():
    tokens, hidden, layers = 16, 128, 2
    products = 12 * hidden**2 * tokens
    attention = 2 * tokens**2 * hidden
    expected = 2 * layers * (products + attention)
    assert work(make(f"bert_tiny@{tokens}")).flops == pytest.approx(expected, rel=0.02)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return x * self.seen


def test_counting_leaves_the_state_alone():
    made = Made("counter", Counter(), (torch.randn(3),), {})
    work(made)
    assert made.model.seen.item() == 0


def test_small_memory_has_the_bandwidth_of_its_cache():
    peaks = Peaks(1, 1e11, {1000: 5e10, 100_000: 1e10})
    assert [peaks.bandwidth_for(size) for size in (10, 5000, 10**9)] == [5e10, 5e10, 1e10]
