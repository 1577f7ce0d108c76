"""A cache that a model updates is written where it lies, and only where that is safe."""

import pytest
import torch
from torch import nn

import nimble

POSITION = torch.tensor([3])


class Cache(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.register_buffer("k", torch.randn(1, 2, 8, 4, generator=torch.manual_seed(0)))
        self._forward = forward

    def forward(self, x):
        return self._forward(self.k, x)


def ops(engine):
    return [task.op for task in engine.plans[0].source.tasks]


def compare(forward, tmp_path):
    """Three calls of eager and engine, and of the engine saved and loaded."""
    theirs, mine = Cache(forward), Cache(forward)
    engine = nimble.compile(mine, (torch.randn(1, 2, 1, 4),), native_kernels=False)
    engine.save(tmp_path / "cache.nimble")
    loaded = nimble.load(tmp_path / "cache.nimble")
    for _ in range(3):
        x = torch.randn(1, 2, 1, 4)
        expected = theirs(x)
        torch.testing.assert_close(engine(x), expected)
        torch.testing.assert_close(loaded(x), expected)
        torch.testing.assert_close(mine.k, theirs.k)
    return engine


def copied(k, x):
    k.index_copy_(2, POSITION, x)
    return (k.transpose(2, 3) * 2).sum(-1)


def put(k, x):
    k[:, :, POSITION] = x
    return k.sum()


def added(k, x):
    k.index_add_(2, POSITION, x)
    return k.exp().sum(), (k * x).sum()


def filled(k, x):
    before = k.sum()
    k.masked_fill_(x > 0, 5.0)
    return before, k.mean()


@pytest.mark.parametrize("forward", [copied, put, added, filled])
def test_a_part_is_written_where_it_lies(forward, tmp_path) -> None:
    engine = compare(forward, tmp_path)
    assert "aten.copy_.default" not in ops(engine)
    assert any(op.split(".")[1].endswith("_") for op in ops(engine))
    assert "update in place" in engine.explain()


def old_contents_are_read_later(k, x):
    old = k * 1
    kept = k.view(-1)[:5] + 0
    new = k.index_copy(2, POSITION, x)
    late = (k * x).sum()
    k.copy_(new)
    return old.sum(), kept, late, k.sum()


def reads_itself(k, x):
    k.index_copy_(2, POSITION, k[:, :, :1] + 0)
    k.copy_(k.index_copy(2, POSITION, k[:, :, 1:2]))
    return k + x


def new_contents_are_returned(k, x):
    new = k.index_copy(2, POSITION, x)
    k.copy_(new)
    return new, k * 2


@pytest.mark.parametrize(
    "forward", [old_contents_are_read_later, reads_itself, new_contents_are_returned]
)
def test_not_where_someone_would_notice(forward, tmp_path) -> None:
    engine = compare(forward, tmp_path)
    assert "aten.copy_.default" in ops(engine)


def test_attention_over_a_cache_that_was_updated_through_a_view() -> None:
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.manual_seed(0)
            self.register_buffer("k", torch.randn(1, 2, 16, 8, generator=generator))
            self.register_buffer("v", torch.randn(1, 2, 16, 8, generator=generator))

        def forward(self, q, k, at):
            self.k.transpose(2, 3).index_copy_(3, at, k.transpose(2, 3))
            return nn.functional.scaled_dot_product_attention(q, self.k, self.v)

    args = (torch.randn(1, 2, 1, 8), torch.ones(1, 2, 1, 8), POSITION)
    for native in (True, False):
        mine, theirs = Decoder(), Decoder()
        engine = nimble.compile(mine, args, native_kernels=native)
        torch.testing.assert_close(engine(*args), theirs(*args))
        torch.testing.assert_close(mine.k, theirs.k)
