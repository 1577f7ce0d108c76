"""Every op that PyTorch has sample inputs for, on a table and in eager."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from aten_on_table import OnTable, as_eager, reversed_with_gaps
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

UNDEFINED = ("empty", "new_empty", "_ctc_loss", "as_strided", "_linalg_check_errors")
"""Ops with results that eager leaves undefined, or that look beyond their argument."""

SKIPPED = ("jiterator", "sparse", "torch.ops")
"""Samples for CUDA, for sparse tensors, or of ops that are not ATen's."""

Call = tuple[torch._ops.OpOverload, list[Any], dict[str, Any]]


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls.append((func, list(args), kwargs or {}))
        return func(*args, **(kwargs or {}))


def op_samples(dtype: torch.dtype, each: int) -> Iterator[Call]:
    """The ops that PyTorch's own samples come down to."""
    # The list of samples imports it, but only its test cases need it.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = object  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if dtype not in info.supported_dtypes("cpu") or info.name.startswith(SKIPPED):
            continue
        for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
            if number == each:
                break
            if sum(t.numel() for t in tree_leaves(sample.input) if is_tensor(t)) > 100_000:
                continue
            recorder = Recorder()
            with torch.no_grad(), recorder:
                try:
                    info(sample.input, *sample.args, **sample.kwargs)
                # torch_geometric replaces torch.index_select by a stricter one.
                except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                    continue
            yield from recorder.calls


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def is_plain(value: object) -> bool:
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, torch.Generator)
    return value.layout is torch.strided and not (
        value.is_conj() or value.is_neg() or value.is_nested or value.is_quantized
    )


def differs(call: Call) -> str | None:
    """How the op on a table differs from eager; None where it does not."""
    op, args, kwargs = call
    torch.manual_seed(1)
    expected = tree_leaves(op(*args, **kwargs))
    if not expected or not all(is_tensor(t) and is_plain(t) for t in expected):
        return None
    if any(0 in t.stride() and t.numel() > 1 for t in expected):
        return None
    for strides in (as_eager, reversed_with_gaps):
        on_table = OnTable(op, args, kwargs, expected, strides)
        torch.manual_seed(1)
        try:
            for got, wanted in zip(on_table.run(), expected, strict=True):
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)
        except (AssertionError, RuntimeError) as error:
            return f"{op} as {on_table.call.op}, {strides.__name__}: {error}"
    return None


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_every_op_gives_what_eager_gives(dtype: torch.dtype) -> None:
    wrong, seen = [], set()
    for op, args, kwargs in op_samples(dtype, each=2):
        name = op.name().removeprefix("aten::")
        if name.startswith(UNDEFINED) or op._schema.is_mutable:
            continue
        if not all(map(is_plain, tree_leaves((args, kwargs)))):
            continue
        shown = str(
            (name, tree_map(lambda v: (v.dtype, v.shape, v.stride()) if is_tensor(v) else v,
                            (args, kwargs)))
        )  # fmt: skip
        if shown not in seen:
            seen.add(shown)
            wrong.append(differs((op, args, kwargs)))
    assert len({text.split("'")[1] for text in seen}) > 200
    assert [text for text in wrong if text] == []
