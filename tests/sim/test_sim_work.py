"""What tasks ask of a GPU: the arithmetic that PyTorch counts, and the bytes that must move."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nimble import zoo
from nimble.devices.sim import default_constants, find_gpu
from nimble.devices.sim.times import times
from nimble.devices.sim.work import Kind, Work
from nimble.errors import InputError
from nimble.foresee import capture_call, capture_step
from nimble.graph import Graph, Task


def work_of(model: nn.Module, *args: torch.Tensor) -> Work:
    return Work.of(capture_call(model.eval(), args, {}, "test").eager)


@pytest.mark.parametrize("name", ["mobilenet_v2@64", "squeezenet@64", "bert_tiny@16"])
def test_arithmetic_is_what_pytorch_counts(name):
    model, inputs = zoo.untrained(name)
    found = work_of(model, *inputs).flops.sum() / 2
    assert found == pytest.approx(zoo.count(name)[1], rel=0.001)


def test_a_convolution_reads_and_writes_each_element_once():
    found = work_of(nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.randn(2, 3, 10, 10))
    assert found.bytes.tolist() == [4 * (2 * 3 * 100 + 8 * 3 * 9 + 2 * 8 * 100)]
    assert found.flops.tolist() == [2 * 2 * 8 * 100 * 27]
    assert found.square.all()


def test_a_bias_is_a_kernel_of_its_own():
    found = work_of(nn.Conv2d(3, 8, 1), torch.randn(1, 3, 4, 4))
    assert found.task.tolist() == [0, 0]
    assert found.kind.tolist() == [Kind.MATRIX, Kind.MOVE]


def test_a_convolution_by_channel_is_no_matrix_product():
    found = work_of(nn.Conv2d(16, 16, 3, groups=16, bias=False), torch.randn(1, 16, 8, 8))
    assert found.kind.tolist() == [Kind.GROUPED]


def test_a_transposed_convolution_multiplies_as_often_as_its_gradient_would():
    found = work_of(nn.ConvTranspose2d(4, 8, 2, stride=2, bias=False), torch.randn(1, 4, 5, 5))
    assert found.flops.tolist() == [2 * 4 * 25 * 8 * 4]


def test_of_a_table_only_what_is_looked_up_is_read():
    found = work_of(nn.Embedding(1000, 4), torch.tensor([1, 2]))
    assert found.bytes.tolist() == [2 * 8 + 2 * (2 * 4 * 4)]


def test_the_way_back_through_a_convolution_is_two_of_them():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, bias=False), nn.Flatten(), nn.Linear(8 * 36, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = (torch.randn(2, 8, 8, 8), torch.tensor([0, 1]))
    step = capture_step(model, nn.functional.cross_entropy, optimizer, batch, "step")
    found = Work.of(step.eager)
    matrix = found.flops[(found.kind == Kind.MATRIX)].tolist()
    forward = 2 * 2 * 8 * 36 * 72
    # The first layer's input needs no gradient.
    assert matrix.count(forward) == 2


def test_what_was_lowered_for_the_cpu_is_refused():
    task = Task("conv", "nimble.conv", ())
    with pytest.raises(InputError, match="lowered for the CPU"):
        Work.of(Graph("test", (), (task,), (), ()))


@functools.cache
def network() -> Work:
    model, inputs = zoo.untrained("squeezenet@64")
    return work_of(model, *inputs)


@settings(deadline=None)
@given(
    st.sampled_from(["bandwidth_gbs", "fp32_tflops"]),
    st.floats(1.0, 8.0),
    st.sampled_from(["v100", "t4", "h100"]),
)
def test_a_faster_gpu_is_never_slower_in_sequence(field, factor, name):
    gpu = find_gpu(name)
    better = replace(gpu, **{field: getattr(gpu, field) * factor})
    before, after = (times(network(), g, default_constants()).alone for g in (gpu, better))
    assert (after <= before + 1e-9).all()


def test_shares_are_shares():
    found = times(network(), find_gpu("v100"), default_constants())
    for share in (found.processors, found.bandwidth):
        assert (share >= 0).all()
        assert (share <= 1).all()
    assert found.work <= found.alone.sum()
    assert not times(Work.of_kernels([]), find_gpu("v100"), default_constants()).alone.size


def test_half_precision_uses_tensor_cores():
    model = nn.Linear(512, 512, bias=False)
    args = torch.randn(512, 512)
    single = work_of(model, args)
    half = work_of(model.half(), args.half())
    v100, constants = find_gpu("v100"), default_constants()
    assert times(half, v100, constants).alone < times(single, v100, constants).alone
    assert np.array_equal(half.flops, single.flops)
