"""Memory in huge pages: with small ones, streaming weights is mostly looking up addresses."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections import Counter
from collections.abc import Iterable

import torch

_HUGE = 2 << 20
_COLLAPSE = 25
"""MADV_COLLAPSE, of Linux 6.1 and later."""
_LINE = 128
"""Two cache lines: the hardware fetches them in pairs."""


def allocate(nbytes: int) -> torch.Tensor:
    """Bytes, in huge pages if there are enough of them and the system has such pages."""
    if nbytes < _HUGE // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(nbytes, dtype=torch.uint8)
    try:
        pages = mmap.mmap(-1, -(-nbytes // _HUGE) * _HUGE + _HUGE, mmap.MAP_PRIVATE)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{nbytes} bytes of memory are not to be had") from error
    with contextlib.suppress(OSError):  # A kernel built without them: small ones serve as well.
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(pages, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE
    return whole[start : start + nbytes]


def join_pages(tensor: torch.Tensor) -> None:
    """Have the system lay the memory of a tensor in huge pages, as far as it fills such pages. It
    stays where it is: whoever holds the tensor notices nothing. Where the system cannot, or not
    now, small pages serve as well."""
    start, nbytes = tensor.data_ptr(), _span(tensor)
    first, end = -(-start // _HUGE) * _HUGE, (start + nbytes) // _HUGE * _HUGE
    if sys.platform == "linux" and first < end:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _COLLAPSE)


def give_back() -> None:
    """Let the system have what was freed: the allocator of glibc keeps it otherwise, and whoever
    looks at the process sees what a capture once needed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Block:
    """Room for tensors side by side, of so many bytes each."""

    def __init__(self, spans: Iterable[int]) -> None:
        self._memory = allocate(sum(map(_lines, spans)))
        self._taken = 0

    def take_in(self, made: list[torch.Tensor], others: Iterable[torch.Tensor]) -> None:
        """Move the tensors here; the list then holds those, and lets go of the old ones one by one.
        Those that share memory, with each other or with `others`, stay where they are."""
        shared = Counter(_storage(tensor) for tensor in (*made, *others))
        for place, tensor in enumerate(made):
            nbytes = _lines(_span(tensor)) if shared[_storage(tensor)] == 1 else 0
            if not nbytes:
                continue
            mine = self._memory[self._taken : self._taken + nbytes].view(tensor.dtype)
            made[place] = mine.as_strided(tensor.shape, tensor.stride()).copy_(tensor)
            self._taken += nbytes


def _lines(nbytes: int) -> int:
    """So many bytes, up to the end of a pair of lines."""
    return -(-nbytes // _LINE) * _LINE


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if not tensor.numel():
        return 0
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()
