"""A replay is the same under all of the caller's modes, and enters none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from aten_program import Program
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Forbidden(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise AssertionError(f"{func} was dispatched to a mode")


def network() -> tuple[Program, Callable[[torch.Tensor], torch.Tensor]]:
    """An out variant, a composite that allocates and an in-place op, on parameters."""
    program = Program()
    weight = torch.nn.Parameter(torch.randn(8, 8))
    bias = torch.nn.Parameter(torch.randn(8))
    x = program.input(torch.empty(4, 8))
    w, b = program.memory(weight), program.memory(bias)
    h, n, y = program.scratch(4, 8), program.scratch(4, 8), program.output(4, 8)
    program.call("addmm", [b, x, w], h)
    program.call("layer_norm", [h, [8], b, b], n)
    program.call("gelu", [n], y)
    program.call("mul_.Tensor", [y, 2.0])

    def eager(given: torch.Tensor) -> torch.Tensor:
        normed = torch.layer_norm(torch.addmm(bias, given, weight), [8], bias, bias)
        return torch.nn.functional.gelu(normed).mul(2.0).detach()

    return program.plan(streams=2), eager


@pytest.mark.parametrize(
    "mode",
    [
        contextlib.nullcontext,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        FakeTensorMode,
        lambda: FlopCounterMode(display=False),
        Forbidden,
        lambda: torch.device("meta"),
        lambda: torch.autograd.profiler.profile(),
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    ],
    ids=[
        "none", "no_grad", "inference_mode", "autocast", "fake", "flops", "dispatch", "device",
        "profiler", "anomaly",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_a_mode_changes_nothing(mode: Callable[[], AbstractContextManager[object]]) -> None:
    program, eager = network()
    x = torch.randn(4, 8)
    expected = eager(x)
    with mode():
        y = program(x)[0]
    assert type(y) is torch.Tensor
    torch.testing.assert_close(y, expected)


def test_a_replay_inside_grad_of_functorch_takes_plain_tensors() -> None:
    program, eager = network()
    x = torch.randn(4, 8)
    seen: list[torch.Tensor] = []

    def f(scale: torch.Tensor) -> torch.Tensor:
        seen.extend(program(x))
        return scale * 2

    torch.func.grad(f)(torch.tensor(1.0))
    torch.testing.assert_close(seen[0], eager(x))


def test_inputs_that_require_grad_give_outputs_that_do_not() -> None:
    program, eager = network()
    x = torch.randn(4, 8, requires_grad=True)
    y = program(x)[0]
    assert not y.requires_grad
    torch.testing.assert_close(y, eager(x))


def test_modes_are_as_before_afterwards() -> None:
    program, _ = network()
    x = torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16), torch.enable_grad():
        program(x)
        assert torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
        assert torch.mm(x, x.t()).dtype == torch.bfloat16
        assert (torch.nn.Parameter(x) * 2).requires_grad
    with torch.inference_mode():
        program(x)
        assert torch.is_inference_mode_enabled()
        assert (x * 2).is_inference()
