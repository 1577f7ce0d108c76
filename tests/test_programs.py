"""Random small programs agree with eager: operators, shapes, dtypes, views, in-place updates."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nimble

DTYPES = [*[torch.float32] * 5, torch.float64, torch.int64, torch.bool, torch.float16]
UNARY = ["neg", "abs", "relu", "sigmoid", "clone", "square", "logical_not", "exp"]
BINARY = ["add", "sub", "mul", "maximum", "eq", "lt"]
VIEWS = ["transpose", "flatten", "slice", "select", "unsqueeze", "expand", "strided", "diagonal"]
INPLACE = ["add_", "mul_", "zero_", "copy_", "relu_", "fill_row_"]


def apply(step, pool):
    """One step of a program; returns the new tensor, or None for an update in place."""
    kind, name, a, b, n = step
    x, y = pool[a % len(pool)], pool[b % len(pool)]
    if kind == "unary":
        if name in ("neg", "abs", "relu", "square") and x.dtype is torch.bool:
            return x.logical_not()
        return getattr(torch, name)(
            x.clamp(-3, 3) if name == "exp" and x.dtype is not torch.bool else x
        )
    if kind == "binary":
        if x.dtype is torch.bool or y.dtype is torch.bool:
            name = "eq"
        if not broadcastable(x, y):
            y = x
        return getattr(torch, name)(x, y)
    if kind == "itself":
        return itself(name, x.neg() if n % 2 and x.dtype is not torch.bool else x, n)
    if kind == "reduce":
        return x.sum(n % x.dim()) if x.dim() else x.sum()
    if kind == "matmul":
        m = x.flatten(1).float() if x.dim() > 1 else x.float().view(1, -1)
        return m @ m.t()
    if kind == "cat":
        return torch.cat([x, x], n % x.dim()) if x.dim() else torch.stack([x, x])
    if kind == "view":
        return view(name, x, n)
    update(name, x, y)
    return None


def itself(name, x, n):
    """With other elements of its own: its first row or column, or transposed."""
    y = [x[:1], x[..., :1], x.transpose(0, -1), x[0]][n // 2] if x.dim() and x.numel() else x
    if not broadcastable(x, y):
        y = x
    return getattr(torch, "eq" if x.dtype is torch.bool else name)(x, y)


def broadcastable(x, y):
    return all(
        p == q or 1 in (p, q) for p, q in zip(reversed(x.shape), reversed(y.shape), strict=False)
    )


def view(name, x, n):
    if name == "unsqueeze" or not x.dim():
        return x.unsqueeze(0)
    if name == "transpose":
        return x.transpose(0, n % x.dim())
    if name == "flatten":
        return x.flatten()
    if name == "slice":
        return x[n % 2 :]
    if name == "select":
        return x.select(0, n % x.shape[0]) if x.shape[0] else x
    if name == "strided":
        return x[..., ::2]
    if name == "diagonal":
        return x.diagonal() if x.dim() > 1 else x
    return x.unsqueeze(0).expand(2, *x.shape)


def update(name, x, y):
    if x.numel() > 1 and 0 in [s for s, d in zip(x.stride(), x.shape, strict=True) if d > 1]:
        return  # Eager refuses to write to an expanded tensor.
    if name == "zero_":
        x.zero_()
    elif name == "fill_row_":
        x.select(0, 0).fill_(1) if x.dim() and x.shape[0] else x.fill_(1)
    elif name == "relu_" and x.dtype is not torch.bool:
        x.relu_()
    elif x.shape == y.shape and torch.can_cast(y.dtype, x.dtype) and x.dtype is not torch.bool:
        getattr(x, name if name != "relu_" else "add_")(y.clone())


steps = st.lists(
    st.one_of(
        st.tuples(st.just("unary"), st.sampled_from(UNARY), *[st.integers(0, 7)] * 3),
        st.tuples(st.just("binary"), st.sampled_from(BINARY), *[st.integers(0, 7)] * 3),
        st.tuples(st.just("itself"), st.sampled_from(BINARY), *[st.integers(0, 7)] * 3),
        st.tuples(st.just("view"), st.sampled_from(VIEWS), *[st.integers(0, 7)] * 3),
        st.tuples(st.just("inplace"), st.sampled_from(INPLACE), *[st.integers(0, 7)] * 3),
        st.tuples(
            st.sampled_from(["reduce", "matmul", "cat"]), st.just(""), *[st.integers(0, 7)] * 3
        ),
    ),
    min_size=1,
    max_size=10,
)
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=3)
inputs = st.lists(st.tuples(shapes, st.sampled_from(DTYPES), st.booleans()), min_size=1, max_size=3)


def tensor(spec, seed):
    shape, dtype, turned = spec
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(shape, generator=generator) * 3).to(dtype)
    return x.transpose(0, -1) if turned and x.dim() > 1 else x


def program(steps, results):
    def run(*inputs):
        pool = list(inputs)
        for step in steps:
            made = apply(step, pool)
            if made is not None and made.numel() <= 256:
                pool.append(made)
        return [pool[-1], *(pool[r % len(pool)] for r in results)]

    return run


def agree(specs, steps, results, workers):
    model = program(steps, results)
    example, mine = ([tensor(s, i) for i, s in enumerate(specs)] for _ in range(2))
    theirs = [tensor(s, i) for i, s in enumerate(specs)]
    engine = nimble.compile(model, tuple(example), workers=workers)
    for _ in range(2):
        got, expected = engine(*mine), model(*theirs)
        torch.testing.assert_close(got, expected, equal_nan=True)
        torch.testing.assert_close(mine, theirs, equal_nan=True)
        assert [t.stride() for t in got if t.numel() > 1] == [
            t.stride() for t in expected if t.numel() > 1
        ]
        assert sharing([*got, *mine]) == sharing([*expected, *theirs])


def sharing(tensors):
    """Which pairs of tensors share memory."""
    storages = [t.untyped_storage()._cdata for t in tensors]
    return [[a == b for b in storages] for a in storages]


relaxed = settings(
    deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, derandomize=True
)
arguments = {
    "specs": inputs,
    "steps": steps,
    "results": st.lists(st.integers(0, 12), min_size=1, max_size=3),
    "workers": st.sampled_from([1, 2]),
}


@given(**arguments)
@settings(relaxed, max_examples=150)
def test_a_sample_of_programs(specs, steps, results, workers):
    agree(specs, steps, results, workers)


@pytest.mark.full
@given(**arguments)
@settings(relaxed, max_examples=int(os.environ.get("NIMBLE_PROGRAMS", "2000")))
def test_two_thousand_programs(specs, steps, results, workers):
    agree(specs, steps, results, workers)
