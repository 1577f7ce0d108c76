"""Products of matrices neither of which is known ahead."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_call import program, run


@settings(max_examples=150, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    m=st.integers(1, 17),
    n=st.sampled_from([1, 7, 8, 9, 16, 31, 32, 100]),
    k=st.sampled_from([1, 2, 3, 4, 7, 64]),
    turned=st.booleans(),
    doubled=st.booleans(),
)
def test_matmul(batch: list[int], m: int, n: int, k: int, turned: bool, doubled: bool) -> None:
    x = torch.randn(*batch, m, k + 3)[..., :k]
    w = torch.randn(*batch, n, k).transpose(-1, -2) if turned else torch.randn(*batch, k, n)
    y, scratch = torch.full((*batch, m, n + 5), 7.0), torch.empty(k * 16)
    ints = [m, n, k, n + 5, k + 3, *w.stride()[-2:], len(batch), *batch]
    for tensor in (y, x, w):
        ints += tensor.stride()[:-2]
    if doubled:
        ints += [0, *program(("add", 1, (0, 0)))]
    run("matmul.float32", [y, scratch, x, w], ints)
    exact = (x.double() @ w.double()) * (2 if doubled else 1)
    torch.testing.assert_close(y[..., :n].double(), exact, rtol=2e-6, atol=2e-5)
    assert torch.equal(y[..., n:], torch.full((*batch, m, 5), 7.0))
