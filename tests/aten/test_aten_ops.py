"""Ops on a table give what eager gives, whatever strides their arguments and results have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aten_on_table import OnTable, Strides, as_eager, reversed_with_gaps
from torch.utils._pytree import tree_map

from nimble import _aten

aten = torch.ops.aten
f = torch.float32


def randn(*shape: int, dtype: torch.dtype = f) -> torch.Tensor:
    return torch.randn(shape).mul(3).to(dtype)


def image(*shape: int) -> torch.Tensor:
    return randn(*shape).contiguous(memory_format=torch.channels_last)


Case = tuple[str, Callable[[], list[Any]]]

# By how the table runs them where results have eager's strides.
OUT: list[Case] = [
    ("add.Tensor", lambda: [randn(4, 5), randn(5)]),
    ("add.Tensor", lambda: [randn(4, 5), 0.1]),
    ("add.Tensor", lambda: [randn(4, 5, dtype=torch.bfloat16), 0.1]),
    ("add.Tensor", lambda: [torch.arange(5), 2.5]),
    ("add.Scalar", lambda: [randn(4, 5), 3]),
    ("mul.Scalar", lambda: [randn(4, 5), 1j]),
    ("div.Tensor", lambda: [torch.arange(5), torch.arange(5)]),
    ("sub.Tensor", lambda: [2.5, randn(4)]),
    ("lt.Scalar", lambda: [randn(4, 5), 0.5]),
    ("eq.Tensor", lambda: [torch.arange(4), torch.tensor([0, 2, 2, 3])]),
    ("relu", lambda: [randn(4, 5)]),
    ("relu", lambda: [torch.arange(-3, 3)]),
    ("gelu", lambda: [randn(4, 5)]),
    ("silu", lambda: [randn(4, 5)]),
    ("sigmoid", lambda: [randn(4, 5).t()]),
    ("hardswish", lambda: [image(2, 3, 4, 4)]),
    ("leaky_relu", lambda: [randn(7), 0.2]),
    ("clamp", lambda: [randn(7), -1.0, None]),
    ("pow.Tensor_Scalar", lambda: [randn(4, 5), 2]),
    ("where.self", lambda: [randn(4, 5) > 0, randn(4, 5), randn()]),
    ("addcmul", lambda: [randn(4), randn(4), randn(4)]),
    ("sum.dim_IntList", lambda: [randn(4, 5, 6), [0, 2]]),
    ("mean.dim", lambda: [image(2, 3, 4, 4), [2, 3], True]),
    ("amax", lambda: [randn(4, 5), [1]]),
    ("argmax", lambda: [randn(4, 5), 1]),
    ("var.correction", lambda: [randn(4, 5), [1]]),
    ("max.dim", lambda: [randn(4, 5), 1]),
    ("topk", lambda: [randn(4, 9), 3]),
    ("cumsum", lambda: [randn(4, 5), 1]),
    ("mm", lambda: [randn(4, 5), randn(6, 5).t()]),
    ("bmm", lambda: [randn(2, 4, 5), randn(2, 5, 3)]),
    ("addmm", lambda: [randn(6), randn(4, 5), randn(5, 6)]),
    ("matmul", lambda: [randn(2, 3, 4), randn(4, 5)]),
    ("softmax.int", lambda: [randn(4, 5), -1]),
    ("_softmax", lambda: [randn(2, 3, 5), 2, False]),
    ("_log_softmax", lambda: [randn(4, 5), 1, False]),
    ("cat", lambda: [[randn(2, 3), randn(2, 4)], 1]),
    ("stack", lambda: [[randn(2, 3), randn(2, 3)]]),
    ("index_select", lambda: [randn(5, 3), 0, torch.tensor([4, 0])]),
    ("gather", lambda: [randn(4, 5), 1, torch.randint(5, (4, 2))]),
    ("index.Tensor", lambda: [randn(4, 5), [None, torch.tensor([1, 3])]]),
    ("tril", lambda: [randn(4, 5)]),
    ("avg_pool2d", lambda: [image(2, 3, 6, 6), 2]),
    ("avg_pool2d", lambda: [randn(2, 3, 6, 6), [3, 2], [2, 1], 1]),
    ("max_pool2d_with_indices", lambda: [image(2, 3, 6, 6), [3, 3], [2, 2], [1, 1]]),
    ("adaptive_avg_pool2d", lambda: [randn(2, 3, 6, 6), [2, 2]]),
    ("upsample_nearest2d", lambda: [image(2, 3, 4, 4), [8, 8]]),
    ("upsample_bilinear2d", lambda: [randn(2, 3, 4, 4), [7, 7], False]),
    ("threshold_backward", lambda: [randn(4), randn(4), 0]),
    ("full", lambda: [[3, 4], 2.5]),
    ("arange.start_step", lambda: [1, 9, 2]),
    ("clone", lambda: [randn(4, 5).t()]),
    ("contiguous", lambda: [randn(4, 5).t()]),
    ("copy", lambda: [randn(4, 5), randn(5, dtype=torch.float64)]),
    ("_to_copy", lambda: [randn(4, 5)]),
    ("bitwise_and.Tensor", lambda: [torch.arange(4), torch.arange(4)]),
    ("logical_not", lambda: [randn(4) > 0]),
    ("abs", lambda: [randn(4, dtype=torch.float64).to(torch.complex64)]),
]
COPY: list[Case] = [
    ("conv2d", lambda: [randn(1, 3, 6, 6), randn(4, 3, 3, 3), randn(4), [2, 2], [1, 1]]),
    ("convolution", lambda: [image(1, 4, 6, 6), randn(4, 2, 3, 3), None,
                             [1, 1], [1, 1], [1, 1], False, [0, 0], 2]),
    ("batch_norm", lambda: [randn(2, 3, 4), None, None, randn(3), randn(3).abs(),
                            False, 0.1, 1e-5, True]),
    ("layer_norm", lambda: [randn(4, 5), [5], randn(5), None]),
    ("native_layer_norm", lambda: [randn(4, 5), [5], None, None, 1e-5]),
    ("native_group_norm", lambda: [randn(2, 4, 3), None, None, 2, 4, 3, 2, 1e-5]),
    ("scaled_dot_product_attention", lambda: [randn(1, 2, 4, 8)] * 3),
    ("embedding", lambda: [randn(9, 4), torch.tensor([[1, 8]])]),
    ("max_pool2d", lambda: [randn(1, 2, 6, 6), [2, 2]]),
    ("constant_pad_nd", lambda: [randn(2, 3), [1, 2], 0.5]),
    ("pad", lambda: [randn(2, 3), [1, 2], "constant", 0.5]),
    ("split.Tensor", lambda: [randn(6, 2), 4]),
    ("chunk", lambda: [randn(6, 2), 3, 1]),
    ("unbind.int", lambda: [randn(2, 3)]),
    ("masked_fill.Scalar", lambda: [randn(4), randn(4) > 0, float("-inf")]),
    ("index_put", lambda: [randn(4, 3), [torch.tensor([1, 1])], randn(2, 3), True]),
    ("flip", lambda: [randn(4, 3), [0]]),
    ("repeat", lambda: [randn(4, 3), [2, 1]]),
    ("roll", lambda: [randn(4, 3), [1], [0]]),
    ("einsum", lambda: ["ij,jk->ik", [randn(2, 3), randn(3, 4)]]),
    ("mse_loss", lambda: [randn(4), randn(4)]),
    ("index.Tensor", lambda: [randn(3), [torch.tensor([True, False, True])]]),
    ("nonzero", lambda: [torch.tensor([0, 1, 1])]),
    ("lstm.input", lambda: [randn(3, 1, 4), [randn(1, 1, 5), randn(1, 1, 5)],
                            [randn(20, 4), randn(20, 5), randn(20), randn(20)],
                            True, 1, 0.0, False, False, False]),
    ("convolution_backward", lambda: [randn(1, 4, 4, 4), randn(1, 3, 4, 4), randn(4, 3, 3, 3), [4],
                                      [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
                                      [True, True, False]]),
    ("linalg_qr", lambda: [randn(3, 3), "r"]),
    ("fft_rfft", lambda: [randn(8)]),
]  # fmt: skip


def overload(name: str) -> Any:
    packet, _, chosen = name.partition(".")
    return getattr(getattr(aten, packet), chosen or "default")


def results(op: Any, args: list[Any]) -> list[torch.Tensor | None]:
    found = op(*args)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def check(op: Any, args: list[Any], strides: Strides, exact: bool) -> OnTable:
    expected = results(op, args)
    if op is aten.convolution_backward.default:
        expected[2] = None
    on_table = OnTable(op, args, {}, expected, strides)
    for _ in range(2):
        for got, wanted in zip(on_table.run(), expected, strict=True):
            if wanted is None:
                continue
            assert got is not None
            if exact:
                assert torch.equal(got, wanted) or torch.equal(got.isnan(), wanted.isnan())
            else:
                torch.testing.assert_close(got, wanted, equal_nan=True)
    return on_table


@pytest.mark.parametrize(("name", "arguments"), OUT)
def test_an_out_variant_writes_what_eager_returns(
    name: str, arguments: Callable[[], list[Any]]
) -> None:
    on_table = check(overload(name), arguments(), as_eager, exact=True)
    assert on_table.call.kind == "out"


@pytest.mark.parametrize(("name", "arguments"), COPY)
def test_an_op_without_one_is_called_and_its_results_copied(
    name: str, arguments: Callable[[], list[Any]]
) -> None:
    on_table = check(overload(name), arguments(), as_eager, exact=False)
    assert on_table.call.kind == "copy"


@pytest.mark.parametrize(("name", "arguments"), OUT + COPY)
def test_results_may_have_any_strides(name: str, arguments: Callable[[], list[Any]]) -> None:
    check(overload(name), arguments(), reversed_with_gaps, exact=False)


@pytest.mark.parametrize(
    "name", ["mm", "addmm", "bmm", "cat", "add.Tensor", "gather", "sum.dim_IntList"]
)
def test_ops_known_to_take_any_strides_keep_their_out_variant(name: str) -> None:
    arguments = next(case[1] for case in OUT if case[0] == name)
    assert check(overload(name), arguments(), reversed_with_gaps, exact=False).call.kind == "out"


@pytest.mark.parametrize("name", ["gelu", "_softmax", "stack", "matmul"])
def test_ops_that_mind_strides_lose_it_where_strides_are_not_the_usual(name: str) -> None:
    arguments = next(case[1] for case in OUT if case[0] == name)
    assert check(overload(name), arguments(), reversed_with_gaps, exact=False).call.kind == "copy"


def test_random_ops_draw_what_eager_draws() -> None:
    for name, args in (("rand", [[3, 4]]), ("bernoulli", [torch.full((3, 4), 0.5)])):
        torch.manual_seed(5)
        expected = overload(name)(*args)
        for strides in (as_eager, reversed_with_gaps):
            on_table = OnTable(overload(name), args, {}, expected, strides)
            torch.manual_seed(5)
            (got,) = on_table.run()
            assert got is not None
            assert torch.equal(got, expected)


def test_an_in_place_op_writes_its_argument() -> None:
    on_table = OnTable(aten.add_.Tensor, [torch.ones(3), torch.ones(3)], {"alpha": 2}, [])
    assert on_table.call.kind == "inplace"
    on_table.run()
    assert on_table.given[0].tolist() == [3.0, 3.0, 3.0]


def test_an_explicit_out_variant_is_an_in_place_op() -> None:
    out = torch.zeros(3)
    on_table = OnTable(aten.exp.out, [torch.zeros(3)], {"out": out}, [])
    on_table.run()
    assert on_table.given[1].tolist() == [1.0, 1.0, 1.0]


def test_every_op_that_writes_tensors_and_takes_only_tensors_and_numbers_can_be_called() -> None:
    """These are the ones that may be called without boxing, if their C++ types allow it."""
    values = {"Tensor": torch.ones(2, 2), "number": 1, "bool": False}
    known = set(torch._C._dispatch_get_all_op_names())
    built = 0
    for schema in torch._C._jit_get_all_schemas():
        types = {str(a.type) for a in schema.arguments}
        if (
            not schema.is_mutable
            or not schema.name.startswith("aten::")
            or not types <= set(values)
        ):
            continue
        packet = getattr(aten, schema.name[6:], None)
        op = getattr(packet, schema.overload_name or "default", None)
        if op is None or op.name() not in known or torch.Tag.inplace_view in op.tags:
            continue
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "CPU"):
            continue
        args = [values[str(a.type)] for a in schema.arguments if not a.kwarg_only]
        kwargs = {a.name: values[str(a.type)] for a in schema.arguments if a.kwarg_only}
        OnTable(op, args, kwargs, [])
        built += 1
    assert built > 300


def test_a_complex_result_that_eager_leaves_lazy_is_resolved() -> None:
    z = randn(3, dtype=torch.complex64) + 1j
    assert aten.conj(z).is_conj()
    check(aten._conj.default, [z], as_eager, exact=False)


def test_a_result_of_another_size_or_dtype_than_planned_is_an_error() -> None:
    args = [torch.tensor([0, 1, 1])]
    on_table = OnTable(aten.nonzero.default, args, {}, torch.empty(3, 1, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"aten::nonzero: result 0 is Long\[2, 1\], expected"):
        on_table.run()
    on_table = OnTable(
        aten.embedding.default, [randn(3, 2), args[0]], {}, torch.empty(3, 2).double()
    )
    with pytest.raises(RuntimeError, match="expected Double"):
        on_table.run()


def test_an_out_variant_that_would_resize_its_result_is_an_error() -> None:
    on_table = OnTable(aten.exp.default, [torch.zeros(3)], {}, torch.empty(2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="resize"):
            on_table.run()
    on_table = OnTable(aten.exp.default, [torch.zeros(2)], {}, torch.empty(3))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="result 0 was to be written in place, as"):
            on_table.run()


def test_results_that_nobody_reads_are_not_copied() -> None:
    table = _aten.Table(4, 4)
    memories = [torch.ones(2, n) for n in (3, 3, 1, 1)]
    for i, memory in enumerate(memories):
        table.memory(i, memory)
        table.value(i, i, f, list(memory.shape), list(memory.stride()), 0)
    args = [_aten.Ref(0), [3], None, None, 1e-5]
    call = table.call("aten::native_layer_norm", "", args, {}, [1, 2, 3], unused=[3])
    table.run([call])
    assert memories[1].eq(0).all()
    assert memories[2].eq(1).all()
    assert memories[3].eq(1).all()
    assert torch.native_layer_norm(memories[0], [3], None, None, 1e-5)[2].gt(1).all()


def test_channels_last_arguments_keep_eagers_values() -> None:
    for name, arguments in OUT + COPY:
        args = tree_map(
            lambda a: (
                a.contiguous(memory_format=torch.channels_last)
                if isinstance(a, torch.Tensor) and a.dim() == 4
                else a
            ),
            arguments(),
        )
        check(overload(name), args, as_eager, exact=False)
