"""Memory of the engine's own: huge pages, and constants side by side."""

import platform
from pathlib import Path

import pytest
import torch

from nimble.devices.cpu.memory import Block, allocate, join_pages


def test_memory_of_any_size_can_be_written() -> None:
    for nbytes in (0, 1, 4096, 1 << 20, (2 << 20) + 1, 5_000_000):
        memory = allocate(nbytes)
        assert memory.shape == (nbytes,)
        memory.fill_(7)
        assert bool((memory == 7).all())


@pytest.mark.parametrize("nbytes", [1 << 50, 1 << 80])
def test_more_than_there_is(nbytes) -> None:
    with pytest.raises(MemoryError, match="not to be had"):
        allocate(nbytes)


def test_much_memory_begins_with_a_huge_page() -> None:
    assert allocate(3 << 20).data_ptr() % (2 << 20) == 0


@pytest.mark.parametrize("nbytes", [0, 4, 1 << 20, (6 << 20) + 12])
def test_pages_are_joined_where_the_tensor_lies(nbytes) -> None:
    tensor = torch.arange(nbytes // 4, dtype=torch.int32)
    kept, place = tensor.clone(), tensor.data_ptr()
    for seen in (tensor, tensor[1:], tensor[::2], tensor.view(1, -1).t()):
        join_pages(seen)
    assert tensor.data_ptr() == place
    assert torch.equal(tensor, kept)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_huge_pages_come_of_it_where_there_are_such() -> None:
    own = allocate(8 << 20)
    own.fill_(1)
    version = tuple(map(int, platform.release().split(".")[:2]))
    if _in_huge_pages() == 0 or version < (6, 1):
        pytest.skip("needs a system that has huge pages to spare, and joins small ones when asked")
    tensor = torch.ones(16 << 20, dtype=torch.uint8)
    before = _in_huge_pages()
    join_pages(tensor)
    assert _in_huge_pages() > before
    assert bool((tensor == 1).all())


def _in_huge_pages() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


def test_tensors_move_into_one_block_and_stay_what_they_were() -> None:
    tensors = [
        torch.randn(3, 5),
        torch.arange(7),
        torch.randn(4, 6).t(),
        torch.empty(0),
        torch.tensor(2.5, dtype=torch.float64),
        torch.randn(1 << 19),
    ]
    moved = list(tensors)
    block = Block(t.numel() * t.element_size() for t in tensors)
    first, rest = moved[:2], moved[2:]
    block.take_in(first, [])
    block.take_in(rest, [])
    moved = first + rest
    for before, after in zip(tensors, moved, strict=True):
        assert torch.equal(before, after)
        assert before.dtype == after.dtype
        assert before.stride() == after.stride()
    blocks = {t.untyped_storage().data_ptr() for t in moved if t.numel()}
    assert len(blocks) == 1
    moved[0].zero_()
    assert torch.equal(tensors[1], moved[1])
    assert torch.equal(tensors[2], moved[2])


def test_what_shares_memory_stays_where_it_is() -> None:
    parameter, one = torch.randn(4, 4), torch.randn(8)
    view, two = parameter[1:], one[2:]
    moved = [view, one, two]
    Block([48, 32, 24]).take_in(moved, [parameter])
    for before, after in zip((view, one, two), moved, strict=True):
        assert before.data_ptr() == after.data_ptr()
