"""Which operators are trusted to write where they are told."""

from __future__ import annotations

import pytest
import torch

from nimble.devices.cuda.calls import _trusts_strides

aten = torch.ops.aten
LAST = torch.channels_last


@pytest.mark.parametrize(
    ("op", "x", "out", "trusted"),
    [
        (aten.avg_pool2d.default, None, None, True),
        (aten.avg_pool2d.default, LAST, LAST, True),
        (aten.avg_pool2d.default, None, LAST, False),
        (aten.avg_pool2d.default, LAST, None, False),
        (aten.add.Tensor, LAST, None, True),
        (aten.cat.default, None, LAST, True),
    ],
)
def test_memory_in_another_format_is_written_only_by_operators_that_look_at_strides(
    op: torch._ops.OpOverload,
    x: torch.memory_format | None,
    out: torch.memory_format | None,
    trusted: bool,
) -> None:
    tensors = [
        torch.empty(2, 4, 6, 6, memory_format=form or torch.contiguous_format) for form in (x, out)
    ]
    assert _trusts_strides(op, op._schema.name.partition("::")[2], tensors) is trusted
