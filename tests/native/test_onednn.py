"""oneDNN's primitives give PyTorch's results, whatever implementation is taken."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nimble import _core, built
from nimble._core import Candidate, Desc, Primitive, Tape

if TYPE_CHECKING:
    from nimble._core import Post


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads


def desc(tensor: Tensor) -> Desc:
    return Desc(tensor.shape, tensor.stride(), str(tensor.dtype).removeprefix("torch."))  # type: ignore[arg-type]


def nhwc(tensor: Tensor) -> Tensor:
    """The same values, with the channels closest together."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def of_use(candidates: list[Candidate]) -> list[Candidate]:
    found = [c for c in candidates if not c.implementation.startswith("ref:")]
    assert found, [c.implementation for c in candidates]
    return found


def tape_of(primitive: Primitive, operands: dict[str, Tensor]) -> Tape:
    """A tape of one task. Its scratchpad is added to `operands`, which keep it."""
    if primitive.scratchpad_bytes:
        operands["scratchpad"] = torch.empty(primitive.scratchpad_bytes, dtype=torch.uint8)
    tape = Tape(streams=1, tasks=1, slots=len(operands))
    tape.primitive(0, 0, primitive, [(slot, 0) for slot in range(len(operands))])
    tape.finish()
    for slot, role in enumerate(primitive.roles):
        tape.set_slot(slot, operands[role].data_ptr())
    return tape


def run(primitive: Primitive, **operands: Tensor) -> None:
    tape_of(primitive, operands).replay()


def packed(weights: Tensor, plain: Desc, wanted: Desc | None) -> Tensor:
    assert wanted is not None
    memory = torch.empty(wanted.bytes, dtype=torch.uint8)
    (reorder, *_) = _core.reorder(plain, wanted)
    run(reorder.create(), dst=memory, src=weights)
    return memory


def check(
    candidates: list[Candidate],
    expected: Tensor,
    dst: Tensor,
    operands: dict[str, Tensor],
    pack: tuple[Tensor, Desc] | None = None,
    around: Tensor | None = None,
) -> None:
    """Run all that are of use; `around` is what dst is a part of, whose rest must not change."""
    whole = dst if around is None else around
    part_before, before = dst.clone(), whole.clone()
    for candidate in of_use(candidates):
        given = dict(operands)
        if pack:
            given["weights"] = packed(*pack, candidate.weights)
        run(candidate.create(), dst=dst, **given)
        torch.testing.assert_close(
            dst,
            expected.to(dst.dtype),
            rtol=1e-4,
            atol=2e-5,
            msg=lambda text, candidate=candidate: f"{candidate.implementation}: {text}",
        )
        dst.copy_(part_before)
        assert torch.equal(whole, before), candidate.implementation


def convolve(
    x: Tensor,
    weights: Tensor,
    dst: Tensor,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    around: Tensor | None = None,
) -> None:
    spatial = x.dim() - 2
    added = torch.randn(dst.shape[1]) if bias else None
    function: Callable[..., Tensor] = [F.conv1d, F.conv2d, F.conv3d][spatial - 1]
    expected = function(
        x.double(),
        weights.double(),
        None if added is None else added.double(),
        stride,
        padding,
        dilation,
        groups,
    )
    candidates = _core.convolution(
        desc(x),
        weights.shape,
        bias,
        desc(dst),
        [stride] * spatial,
        [dilation] * spatial,
        [padding] * spatial,
        [padding] * spatial,
        groups,
    )
    operands = {"src": x} if added is None else {"src": x, "bias": added}
    check(candidates, expected, dst, operands, (weights, desc(weights)), around)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "weights", "options"),
    [
        ((2, 16, 9, 9), (24, 16, 1, 1), {}),
        ((1, 16, 9, 9), (24, 16, 3, 3), {"padding": 1}),
        ((1, 16, 9, 9), (24, 16, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 3, 17, 17), (16, 3, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 16, 9, 9), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
        ((1, 12, 9, 9), (12, 1, 5, 5), {"padding": 2, "groups": 12, "stride": 2}),
        ((1, 16, 9, 9), (32, 8, 3, 3), {"groups": 2}),
        ((1, 16, 11, 11), (8, 16, 3, 3), {"padding": 2, "dilation": 2}),
        ((1, 13, 7, 7), (9, 13, 3, 3), {"padding": 1}),
        ((2, 8, 20), (16, 8, 5), {"padding": 2, "stride": 2}),
        ((1, 8, 5, 6, 7), (16, 8, 3, 3, 3), {"padding": 1}),
    ],
)
def test_convolution(
    shape: tuple[int, ...], weights: tuple[int, ...], options: dict[str, int], bias: bool
) -> None:
    x, w = nhwc(torch.randn(shape)), torch.randn(weights)
    function: Callable[..., Tensor] = [F.conv1d, F.conv2d, F.conv3d][len(shape) - 3]
    dst = nhwc(torch.zeros_like(function(x, w, **options)))
    convolve(x, w, dst, bias=bias, **options)


def test_convolution_to_a_slice_of_channels() -> None:
    """oneDNN 3.2 has but its reference for it: right, and left alone by `of_use`."""
    x, w = nhwc(torch.randn(1, 16, 5, 5)), torch.randn(8, 16, 3, 3)
    around = nhwc(torch.randn(1, 24, 5, 5))
    before, dst = around.clone(), around[:, 8:16]
    window = ((1, 1), (1, 1), (1, 1), (1, 1))
    chosen = _core.convolution(desc(x), w.shape, False, desc(dst), *window)[0]
    run(chosen.create(), dst=dst, src=x, weights=packed(w, desc(w), chosen.weights))
    torch.testing.assert_close(dst, F.conv2d(x, w, padding=1), rtol=1e-4, atol=2e-5)
    assert torch.equal(around[:, :8], before[:, :8])
    assert torch.equal(around[:, 16:], before[:, 16:])


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 1), (3, 16)])
def test_a_tile_of_rows_reads_a_halo_and_pads_only_at_the_edge(kernel: int, groups: int) -> None:
    x, w = nhwc(torch.randn(1, 16, 12, 9)), torch.randn(16, 16 // groups, kernel, kernel)
    halo = kernel // 2
    whole = nhwc(torch.zeros(1, 16, 12, 9))
    expected = F.conv2d(x.double(), w.double(), None, 1, halo, 1, groups)
    for top, bottom in pairwise((0, 5, 8, 12)):
        first, last = max(top - halo, 0), min(bottom + halo, 12)
        src, dst = x[:, :, first:last], whole[:, :, top:bottom]
        candidates = _core.convolution(
            desc(src),
            w.shape,
            False,
            desc(dst),
            (1, 1),
            (1, 1),
            (first - (top - halo), halo),
            (bottom + halo - last, halo),
            groups,
        )
        rows = expected[:, :, top:bottom]
        check(candidates, rows, dst, {"src": src}, (w, desc(w)), whole)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(1, 16, 9), (1, 16, 7, 7), (1, 16, 4, 4, 4)])
def test_transposed_convolution(shape: tuple[int, ...], groups: int) -> None:
    spatial = len(shape) - 2
    function: Callable[..., Tensor] = [
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    ][spatial - 1]
    x, w = nhwc(torch.randn(shape)), torch.randn(16, 24 // groups, *[3] * spatial)
    bias = torch.randn(24)
    expected = function(x.double(), w.double(), bias.double(), 2, 1, 1, groups)
    dst = nhwc(torch.zeros(expected.shape))
    candidates = _core.convolution(
        desc(x),
        w.shape,
        True,
        desc(dst),
        [2] * spatial,
        [1] * spatial,
        [1] * spatial,
        [0] * spatial,  # the padding of 1 less the output padding of 1
        groups,
        transposed=True,
    )
    plain = desc(w)
    if groups > 1:
        plain = plain.grouped(groups).permuted((0, 2, 1, *range(3, 3 + spatial)))
    else:
        plain = plain.permuted((1, 0, *range(2, 2 + spatial)))
    check(candidates, expected, dst, {"src": x, "bias": bias}, (w, plain))


POSTS: list[tuple[str, float, float, Callable[[Tensor], Tensor]]] = [
    ("relu", 0, 0, F.relu),
    ("relu", 0.1, 0, lambda x: F.leaky_relu(x, 0.1)),
    ("clip", 0, 6, F.relu6),
    ("tanh", 0, 0, torch.tanh),
    ("logistic", 0, 0, torch.sigmoid),
    ("gelu_erf", 0, 0, F.gelu),
    ("gelu_tanh", 0, 0, lambda x: F.gelu(x, approximate="tanh")),
    ("swish", 1, 0, F.silu),
    ("hardswish", 1 / 6, 1 / 2, F.hardswish),
    ("hardsigmoid", 1 / 6, 1 / 2, F.hardsigmoid),
    ("elu", 1, 0, F.elu),
    ("linear", 2, 3, lambda x: 2 * x + 3),
    ("exp", 0, 0, torch.exp),
    ("sqrt", 0, 0, lambda x: torch.sqrt(x)),
    ("abs", 0, 0, torch.abs),
    ("square", 0, 0, torch.square),
    ("log", 0, 0, torch.log),
    ("round", 0, 0, torch.round),
    ("pow", 2, 3, lambda x: 2 * x**3),
    ("softplus", 1, 0, F.softplus),
    ("mish", 0, 0, F.mish),
]


@pytest.mark.parametrize(
    ("kind", "alpha", "beta", "function"), POSTS, ids=[f"{p[0]}-{p[1]:g}" for p in POSTS]
)
def test_eltwise_alone_and_after_a_convolution(
    kind: str, alpha: float, beta: float, function: Callable[[Tensor], Tensor]
) -> None:
    x = nhwc(torch.randn(1, 16, 9, 9) * 3)
    x = x.abs() if kind in ("sqrt", "log") else x
    dst = torch.zeros_like(x)
    alone = _core.eltwise(kind, desc(x), desc(dst), alpha, beta)
    check(alone, function(x.double()), dst, {"src": x})
    w = torch.eye(16).reshape(16, 16, 1, 1)
    window = ((1, 1), (1, 1), (0, 0), (0, 0))
    post: list[Post] = [("eltwise", kind, alpha, beta)]
    after = _core.convolution(desc(x), w.shape, False, desc(dst), *window, post=post)
    check(after, function(x.double()), dst, {"src": x}, (w, desc(w)))


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 1), (3, 16)])
def test_post_operations_are_done_in_order(kernel: int, groups: int) -> None:
    x, w = nhwc(torch.randn(1, 16, 9, 9)), torch.randn(16, 16 // groups, kernel, kernel)
    old, other, scale = (nhwc(torch.randn(1, 16, *size)) for size in ((9, 9), (9, 9), (1, 1)))
    out = F.conv2d(x.double(), w.double(), None, 1, kernel // 2, 1, groups)
    window = ((1, 1), (1, 1), (kernel // 2,) * 2, (kernel // 2,) * 2, groups)
    chains: list[tuple[list[Post], Tensor]] = [
        ([("sum", 1.0), ("eltwise", "relu", 0, 0)], F.relu(out + old)),
        ([("eltwise", "relu", 0, 0), ("sum", 1.0)], F.relu(out) + old),
        (
            [("eltwise", "swish", 1, 0), ("binary", "add", desc(other))],
            F.silu(out) + other,
        ),
        (
            [("binary", "mul", desc(scale)), ("binary", "add", desc(other))],
            out * scale + other,
        ),
    ]
    for post, expected in chains:
        dst = old.clone(memory_format=torch.preserve_format)
        operands = {"src": x}
        for index, step in enumerate(post):
            if step[0] == "binary":
                operands[f"post{index}"] = scale if step[2] == desc(scale) else other
        candidates = _core.convolution(desc(x), w.shape, False, desc(dst), *window, post=post)
        check(candidates, expected, dst, operands, (w, desc(w)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 32), (32, 24)),
        ((1, 64), (64, 64)),
        ((2, 5, 32), (2, 32, 24)),
        ((2, 5, 32), (1, 32, 24)),
        ((2, 3, 5, 32), (2, 3, 32, 7)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], bias: bool) -> None:
    x, w, added = torch.randn(a), torch.randn(b), torch.randn(b[-1])
    expected = x.double() @ w.double() + (added.double() if bias else 0)
    dst = torch.zeros(expected.shape)
    operands = {"src": x} | ({"bias": added} if bias else {})
    given = _core.matmul(desc(x), desc(w), bias, desc(dst))
    check(given, expected, dst, operands | {"weights": w})
    left_to_onednn = _core.matmul(desc(x), b, bias, desc(dst))
    check(left_to_onednn, expected, dst, operands, (w, desc(w)))


def test_matmul_from_and_to_slices_of_columns() -> None:
    """Also a convolution of 1 by 1 on a slice of channels, of which oneDNN has none itself."""
    x, w, around = torch.randn(81, 48)[:, 8:24], torch.randn(32, 16), torch.randn(81, 64)
    dst = around[:, 16:48]
    expected = F.linear(x.double(), w.double())
    columns = desc(w).permuted((1, 0))
    for weights in (columns, columns.dims):
        candidates = _core.matmul(desc(x), weights, False, desc(dst))
        check(candidates, expected, dst, {"src": x}, (w, columns), around)


def test_matmul_of_heads_within_one_projection() -> None:
    """Attention: queries and keys as strided views, scores scaled."""
    batch, heads, tokens, size = 1, 2, 6, 8
    qkv = torch.randn(batch, tokens, 3, heads, size)
    q, k = (qkv[:, :, i].permute(0, 2, 1, 3) for i in (0, 1))
    dst = torch.zeros(batch, heads, tokens, tokens)
    post: list[Post] = [("eltwise", "linear", 0.25, 0)]
    keys = k.transpose(-1, -2)
    candidates = _core.matmul(desc(q), desc(keys), False, desc(dst), post)
    check(candidates, 0.25 * (q.double() @ keys.double()), dst, {"src": q, "weights": k})


@pytest.mark.parametrize(("rows", "inner", "outer"), [(1, 64, 64), (5, 48, 20), (16, 128, 32)])
@pytest.mark.parametrize("bias", [True, False])
def test_inner_product(rows: int, inner: int, outer: int, bias: bool) -> None:
    x, w, added = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(outer)
    expected = F.relu(F.linear(x.double(), w.double(), added.double() if bias else None))
    post: list[Post] = [("eltwise", "relu", 0, 0)]
    operands = {"src": x} | ({"bias": added} if bias else {})
    dst = torch.zeros(rows, outer)
    candidates = _core.inner_product(desc(x), w.shape, bias, desc(dst), post)
    check(candidates, expected, dst, operands, (w, desc(w)))


@pytest.mark.parametrize("shape", [(1, 8, 20), (1, 16, 9, 9), (1, 8, 5, 6, 7)])
def test_pooling(shape: tuple[int, ...]) -> None:
    spatial = len(shape) - 2
    x = nhwc(torch.randn(shape))
    largest: Callable[..., Tensor] = [F.max_pool1d, F.max_pool2d, F.max_pool3d][spatial - 1]
    mean: Callable[..., Tensor] = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][spatial - 1]
    window = ([3] * spatial, [2] * spatial, [1] * spatial, [1] * spatial, [1] * spatial)
    for kind, expected in {
        "max": largest(x, 3, 2, 1),
        "avg_include": mean(x, 3, 2, 1, count_include_pad=True),
        "avg_exclude": mean(x, 3, 2, 1, count_include_pad=False),
    }.items():
        dst = nhwc(torch.zeros(expected.shape))
        check(_core.pooling(kind, desc(x), desc(dst), *window), expected, dst, {"src": x})


def test_pooling_with_dilation_and_to_a_slice() -> None:
    x = nhwc(torch.randn(1, 16, 11, 11))
    expected = F.max_pool2d(x, 3, 1, 1, 2)
    around = nhwc(torch.randn(1, 32, 9, 9))
    dst = around[:, 8:24]
    window = ((3, 3), (1, 1), (2, 2), (1, 1), (1, 1))
    candidates = _core.pooling("max", desc(x), desc(dst), *window)
    run(candidates[0].create(), dst=dst, src=x)
    assert torch.equal(dst, expected)


@pytest.mark.parametrize("log", [True, False])
def test_softmax(log: bool) -> None:
    function = F.log_softmax if log else F.softmax
    x = torch.randn(3, 37, 16)
    dst = torch.zeros_like(x)
    check(_core.softmax(desc(x), desc(dst), -1, log), function(x, -1), dst, {"src": x})
    image = nhwc(torch.randn(1, 16, 5, 5))
    dst = torch.zeros_like(image)
    check(_core.softmax(desc(image), desc(dst), 1, log), function(image, 1), dst, {"src": image})


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine: bool) -> None:
    x, scale, shift = torch.randn(2, 7, 48), torch.randn(48), torch.randn(48)
    dst = torch.zeros_like(x)
    weights = (scale.double(), shift.double()) if affine else ()
    expected = F.layer_norm(x.double(), (48,), *weights, eps=1e-5)
    operands = {"scale": scale, "shift": shift} if affine else {}
    candidates = _core.layer_norm(desc(x), desc(dst), 1e-5, affine)
    check(candidates, expected, dst, {"src": x} | operands)


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "ge": torch.ge,
    "gt": torch.gt,
    "le": torch.le,
    "lt": torch.lt,
    "eq": torch.eq,
    "ne": torch.ne,
}


@pytest.mark.parametrize("kind", BINARY)
def test_binary(kind: str) -> None:
    a, b = nhwc(torch.randn(1, 16, 5, 5)), nhwc(torch.randn(1, 16, 5, 5))
    one_each = nhwc(torch.randn(1, 16, 1, 1))
    dst = torch.zeros_like(a)
    for other in (b, one_each):
        expected = BINARY[kind](a, other)
        candidates = _core.binary(kind, desc(a), desc(other), desc(dst))
        check(candidates, expected, dst, {"a": a, "b": other})


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "mul"])
def test_reduction(kind: str) -> None:
    x = nhwc(torch.rand(1, 16, 4, 4) + 0.5)
    expected = {
        "sum": lambda: x.sum((2, 3), keepdim=True),
        "mean": lambda: x.mean((2, 3), keepdim=True),
        "max": lambda: x.amax((2, 3), keepdim=True),
        "min": lambda: x.amin((2, 3), keepdim=True),
        "mul": lambda: x.prod(3, keepdim=True).prod(2, keepdim=True),
    }[kind]()
    dst = nhwc(torch.zeros(1, 16, 1, 1))
    candidates = _core.reduction(kind, desc(x), desc(dst))
    run(candidates[0].create(), dst=dst, src=x)
    torch.testing.assert_close(dst, expected)


@pytest.mark.parametrize(("kind", "mode"), [("nearest", "nearest-exact"), ("linear", "bilinear")])
@pytest.mark.parametrize("size", [(10, 10), (7, 9)])
def test_resampling(kind: str, mode: str, size: tuple[int, int]) -> None:
    x = nhwc(torch.randn(1, 16, 5, 5))
    expected = F.interpolate(x, size, mode=mode)
    dst = nhwc(torch.zeros(expected.shape))
    check(_core.resampling(kind, desc(x), desc(dst)), expected, dst, {"src": x})


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm(reverse: bool) -> None:
    time, batch, inner, outer = 5, 2, 12, 16
    module = torch.nn.LSTM(inner, outer)
    x = torch.randn(time, batch, inner)
    h, c = torch.randn(1, batch, outer), torch.randn(1, batch, outer)
    with torch.no_grad():
        expected, (last_h, last_c) = module(x.flip(0) if reverse else x, (h, c))
        bias = module.bias_ih_l0 + module.bias_hh_l0
    dst, dst_h, dst_c = torch.zeros(time, batch, outer), torch.zeros_like(h), torch.zeros_like(c)
    for candidate in of_use(_core.lstm(desc(x), desc(dst), reverse)):
        run(
            candidate.create(),
            dst=dst,
            dst_h=dst_h,
            dst_c=dst_c,
            src=x,
            src_h=h,
            src_c=c,
            weights=gates(module.weight_ih_l0, 4, candidate.desc("weights")),
            weights_h=gates(module.weight_hh_l0, 4, candidate.desc("weights_h")),
            bias=bias,
        )
        torch.testing.assert_close(dst, expected.flip(0) if reverse else expected)
        torch.testing.assert_close((dst_h, dst_c), (last_h, last_c))


def test_gru() -> None:
    time, batch, inner, outer = 5, 2, 12, 16
    module = torch.nn.GRU(inner, outer)
    x, h = torch.randn(time, batch, inner), torch.randn(1, batch, outer)

    def update_first(gates: Tensor) -> Tensor:
        r, z, n = gates.detach().chunk(3)
        return torch.cat([z, r, n])

    with torch.no_grad():
        expected, last = module(x, h)
        of_input, of_state = update_first(module.bias_ih_l0), update_first(module.bias_hh_l0)
        both = (of_input + of_state)[: 2 * outer]
        bias = torch.cat([both, of_input[2 * outer :], of_state[2 * outer :]])
    dst, dst_h = torch.zeros(time, batch, outer), torch.zeros_like(h)
    for candidate in of_use(_core.gru(desc(x), desc(dst))):
        run(
            candidate.create(),
            dst=dst,
            dst_h=dst_h,
            src=x,
            src_h=h,
            weights=gates(update_first(module.weight_ih_l0), 3, candidate.desc("weights")),
            weights_h=gates(update_first(module.weight_hh_l0), 3, candidate.desc("weights_h")),
            bias=bias,
        )
        torch.testing.assert_close(dst, expected)
        torch.testing.assert_close(dst_h, last)


def gates(weights: Tensor, count: int, wanted: Desc) -> Tensor:
    """(gates * out, in), packed."""
    outer, inner = weights.shape[0] // count, weights.shape[1]
    size = weights.numel()
    plain = Desc((1, 1, inner, count, outer), (size, size, 1, inner * outer, inner))
    return packed(weights.detach(), plain, wanted)


def test_what_cannot_be_done_is_an_empty_list() -> None:
    half = Desc((1, 8, 4, 4), (128, 1, 32, 8), "bfloat16")
    single = Desc((1, 8, 4, 4), (128, 1, 32, 8))
    window = ((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    assert _core.pooling("max", single, half, *window) == []
    post: list[Post] = [("sum", 1.0)]  # oneDNN would take it and leave it out
    assert _core.pooling("max", single, single, *window, post=post) == []
    assert _core.eltwise("tanh", single, single, post=post) == []


def product(rows: int = 1, size: int = 64) -> tuple[Primitive, Tensor, Tensor]:
    """A primitive, and weights for it: plain, packed."""
    x, w = Desc((rows, size), (size, 1)), torch.randn(size, size)
    chosen = of_use(_core.inner_product(x, w.shape, False, x))[0]
    return chosen.create(), w, packed(w, desc(w), chosen.weights)


def test_slots_may_be_bound_again_between_replays() -> None:
    primitive, w, weights = product()
    first, second, out = torch.randn(1, 64), torch.randn(1, 64), torch.zeros(2, 64)
    operands = {"dst": out, "src": first, "weights": weights}
    tape = tape_of(primitive, operands)
    tape.replay()
    torch.testing.assert_close(out[0], (first @ w.T)[0])
    tape.set_slot(1, second.data_ptr())
    tape.set_slot(0, out[1].data_ptr())
    tape.replay()
    torch.testing.assert_close(out, torch.cat([first, second]) @ w.T)


def test_operands_lie_at_offsets() -> None:
    primitive, w, weights = product()
    memory = torch.randn(3, 64)
    tape = Tape(streams=1, tasks=1, slots=3)
    places = {"dst": (0, 2 * 256), "src": (0, 256), "weights": (1, 0), "scratchpad": (2, 0)}
    tape.primitive(0, 0, primitive, [places[role] for role in primitive.roles])
    tape.finish()
    scratchpad = torch.empty(primitive.scratchpad_bytes + 1, dtype=torch.uint8)
    for slot, tensor in enumerate((memory, weights, scratchpad)):
        tape.set_slot(slot, tensor.data_ptr())
    tape.replay()
    torch.testing.assert_close(memory[2], memory[1] @ w.T)


def test_tapes_on_several_threads_share_a_primitive() -> None:
    primitive, w, weights = product(32, 128)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            out = torch.zeros(32, 128)
            sources = [torch.randn(32, 128) for _ in range(4)]
            operands = {"dst": out, "src": sources[0], "weights": weights}
            tape = tape_of(primitive, operands)
            for index in range(200):
                source = sources[index % 4]
                tape.set_slot(1, source.data_ptr())
                tape.replay()
                torch.testing.assert_close(out, source @ w.T)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_streams_of_a_tape_run_primitives_side_by_side() -> None:
    primitive, w, weights = product(32, 128)
    x, out = torch.randn(4, 32, 128), torch.zeros(4, 32, 128)
    scratchpads = torch.empty(4, primitive.scratchpad_bytes + 1, dtype=torch.uint8)
    tape = Tape(streams=2, tasks=4, slots=4)
    for task in range(4):
        places = {
            "dst": (0, task * 32 * 128 * 4),
            "src": (1, task * 32 * 128 * 4),
            "weights": (2, 0),
            "scratchpad": (3, task * (primitive.scratchpad_bytes + 1)),
        }
        tape.primitive(task % 2, task, primitive, [places[role] for role in primitive.roles])
    tape.finish()
    for slot, tensor in enumerate((out, x, weights, scratchpads)):
        tape.set_slot(slot, tensor.data_ptr())
    for _ in range(50):
        out.zero_()
        tape.replay()
        torch.testing.assert_close(out, x @ w.T)


def operand_memory(primitive: Primitive) -> dict[str, Tensor]:
    return {
        role: torch.empty(primitive.desc(role).bytes, dtype=torch.uint8) for role in primitive.roles
    }


def test_no_threads_are_started_and_the_callers_number_of_threads_stays() -> None:
    """On a thread of its own, for OpenMP would start others for it anew."""
    openmp, failures = ctypes.CDLL("libgomp.so.1"), []

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def work() -> None:
        try:
            torch.zeros(1 << 20)  # the first time, torch sets the thread's number of threads
            openmp.omp_set_num_threads(4)
            x = Desc((1, 64, 56, 56), (64 * 56 * 56, 1, 64 * 56, 64))
            window = ((1, 1), (1, 1), (1, 1), (1, 1))
            offered = _core.convolution(x, (64, 64, 3, 3), False, x, *window)
            offered += _core.pooling("max", x, x, (3, 3), *window)
            offered += _core.binary("add", x, x, x) + _core.eltwise("tanh", x, x)
            offered += _core.softmax(x, x, 1) + _core.reorder(x, Desc(x.dims, (1, 3136, 56, 1)))
            before = threads()
            for candidate in of_use(offered):
                primitive = candidate.create()
                assert openmp.omp_get_max_threads() == 4
                run(primitive, **operand_memory(primitive))
                assert openmp.omp_get_max_threads() == 4
                assert threads() == before, candidate.implementation
            torch.rand(1 << 20).sin_()
            assert threads() > before, "this test would not notice"
        except BaseException as failure:
            failures.append(failure)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert not failures, failures


def test_torch_and_onednn_share_one_openmp() -> None:
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "/libgomp" in line or "/libiomp" in line}
    assert len(libraries) == 1, libraries


def test_openmps_number_of_threads_is_as_before() -> None:
    count = ctypes.CDLL("libgomp.so.1").omp_get_max_threads
    before = count()
    primitive, _, weights = product()
    out = torch.zeros(1, 64)
    run(primitive, dst=out, src=torch.zeros(1, 64), weights=weights)
    assert count() == before


def test_descriptions() -> None:
    plain = Desc((2, 8, 4, 4), (128, 1, 32, 8))
    assert (plain.dims, plain.strides, plain.dtype) == ((2, 8, 4, 4), (128, 1, 32, 8), "float32")
    assert plain.bytes == 2 * 8 * 4 * 4 * 4
    assert plain == Desc((2, 8, 4, 4), (128, 1, 32, 8))
    assert hash(plain) == hash(Desc((2, 8, 4, 4), (128, 1, 32, 8)))
    assert plain != Desc((2, 8, 4, 4), (128, 16, 4, 1))
    assert plain != Desc((2, 8, 4, 4), (128, 1, 32, 8), "bfloat16")
    assert plain != "another thing"
    assert Desc((1, 8, 4, 4), (999, 1, 32, 8)) == Desc((1, 8, 4, 4), (128, 1, 32, 8))
    assert Desc((1, 8, 1, 1), (8, 1, 1, 1)).strides == (8, 1, 1, 1)
    assert Desc((1, 8, 1, 1), (8, 1, 8, 8)).strides == (8, 1, 8, 8)
    assert plain.grouped(2).strides == (128, 128, 1, 32, 8)
    assert plain.permuted((1, 0, 3, 2)).dims == (8, 2, 4, 4)
    assert repr(Desc((3,), (1,))) == "Desc((3,), (1,), 'float32')"
    opaque = of_use(_core.convolution(plain, (16, 8, 3, 3), False, *wide()))[0].weights
    assert opaque is not None
    assert opaque.strides is None
    assert opaque.bytes >= 16 * 8 * 3 * 3 * 4
    with pytest.raises(ValueError, match="a layout of oneDNN's own cannot be grouped"):
        opaque.grouped(2)


def wide() -> tuple[Any, ...]:
    return Desc((2, 16, 4, 4), (256, 1, 64, 16)), (1, 1), (1, 1), (1, 1), (1, 1)


IMAGE = Desc((1, 8, 4, 4), (128, 1, 32, 8))
ROWS = Desc((2, 8), (8, 1))


def convolution(weights: Sequence[int] = (8, 8, 1, 1), **changes: Any) -> list[Candidate]:
    window = dict.fromkeys(("strides", "dilation"), (1, 1))
    window |= dict.fromkeys(("padding_l", "padding_r"), (0, 0))
    return _core.convolution(IMAGE, weights, False, IMAGE, **(window | changes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Desc((2, 3), (1,)), r"strides must be 2 numbers, not \(1,\)"),
        (lambda: Desc((2, -3), (1, 1)), r"dims must be at least 0, not \(2, -3\)"),
        (lambda: Desc((2, 3), (1, 1)), r"dims \(2, 3\) with strides \(1, 1\) overlap"),
        (lambda: Desc((), ()), "a tensor has 1 to 12 dims, not 0"),
        (lambda: Desc((1,) * 13, (1,) * 13), "a tensor has 1 to 12 dims, not 13"),
        (lambda: Desc((1,), (1,), "float64"), "dtype 'float64' is none of float32"),  # type: ignore[arg-type]
        (lambda: ROWS.grouped(3), r"the first of dims \(2, 8\) does not split into 3 groups"),
        (lambda: ROWS.permuted((0, 0)), r"\(0, 0\) is no order of 2 dims"),
        (lambda: ROWS.permuted((0, 1, 2)), r"\(0, 1, 2\) is no order of 2 dims"),
        (lambda: convolution((8, 8, 3, 3)), r"no such problem: convolution of src \(1, 8, 4, 4\)"),
        (lambda: convolution((8, 8, 1)), r"weights_dims must be 4 numbers, not \(8, 8, 1\)"),
        (lambda: convolution(groups=3), "weights_dims .* do not split into 3 groups"),
        (lambda: convolution(groups=0), "weights_dims .* do not split into 0 groups"),
        (lambda: convolution(strides=(1,)), r"strides must be 2 numbers, not \(1,\)"),
        (lambda: convolution(dilation=(0, 1)), r"dilation must be at least 1, not \(0, 1\)"),
        (lambda: convolution(padding_l=(-1, 0)), "padding_l must be at least 0"),
        (
            lambda: convolution(post=[("eltwise", "sine", 0, 0)]),
            "there is no eltwise kind 'sine'; there are relu, clip",
        ),
        (lambda: convolution(post=[("sum", 1, 2)]), r"\('sum', 1, 2\) is no post operation"),
        (lambda: convolution(post=["sum"]), "'sum' is no post operation"),
        (lambda: convolution(post=[("binary", "add", None)]), "is no post operation"),
        (lambda: _core.matmul(ROWS, (9, 8), False, ROWS), "no such problem: matmul of src"),
        (lambda: _core.inner_product(ROWS, (8, 9), False, ROWS), "no such problem: inner product"),
        (
            lambda: _core.pooling("most", IMAGE, IMAGE, *[(1, 1)] * 5),
            "there is no pooling kind 'most'; there are max, avg_include, avg_exclude",
        ),
        (
            lambda: _core.pooling("max", ROWS, ROWS, *[(1, 1)] * 5),
            "pooling takes 3 to 5 dims",
        ),
        (lambda: _core.softmax(ROWS, ROWS, 2), r"src \(2, 8\) has no axis 2"),
        (lambda: _core.binary("and", ROWS, ROWS, ROWS), "there is no binary kind 'and'"),
        (lambda: _core.reduction("any", ROWS, ROWS), "there is no reduction kind 'any'"),
        (lambda: _core.resampling("cubic", IMAGE, IMAGE), "there is no resampling kind 'cubic'"),
        (lambda: _core.reorder(ROWS, IMAGE), "no such problem: reorder"),
        (lambda: _core.lstm(ROWS, ROWS), "a sequence has dims"),
        (lambda: convolution()[0].desc("bias"), "there is no operand 'bias'; there are dst, src"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_operands_must_fit_the_primitive_and_the_tape() -> None:
    primitive, _, _ = product()
    count = len(primitive.roles)
    tape = Tape(streams=1, tasks=1, slots=1)
    with pytest.raises(ValueError, match=rf"takes {count} operands \(dst, src, weights.*\), not 1"):
        tape.primitive(0, 0, primitive, [(0, 0)])
    with pytest.raises(ValueError, match="operand 0 of task 0 is at slot 1, offset 0"):
        tape.primitive(0, 0, primitive, [(1, 0)] * count)
    tape.primitive(0, 0, primitive, [(0, 0)] * count)
    tape.finish()
    with pytest.raises(RuntimeError, match="slot 0 is used by a native kernel and has no address"):
        tape.replay()


def test_version() -> None:
    assert _core.onednn_version().startswith("3.2.")


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    what_to_do = r"pip install 'onednn-cpu-gomp==2023\.2\.0'"
    with monkeypatch.context() as patch:
        patch.setattr(built, "ONEDNN", "onednn-of-nobody")
        with pytest.raises(ImportError, match=r"Nimble needs oneDNN.* pip install 'onednn-of-nob"):
            built.load_onednn()
    with monkeypatch.context() as patch:
        patch.setattr(metadata.Distribution, "version", "1999.1")
        with pytest.raises(ImportError, match=rf"1999\.1 is installed.*{what_to_do}"):
            built.load_onednn()
    with monkeypatch.context() as patch:
        patch.setattr(metadata.PackagePath, "locate", lambda _: "/nowhere/libdnnl.so.3")
        with pytest.raises(ImportError, match=rf"does not load \(/nowhere.*{what_to_do}"):
            built.load_onednn()
    built.load_onednn()
