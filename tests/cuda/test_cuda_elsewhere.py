"""Tensors that are not the CPU's. The stand-in computes on the CPU, where nobody would notice an
engine that takes nothing else; here tensors are PyTorch's *meta* tensors, which have types and no
numbers, or fake ones of a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cuda_standin import Graph, StandIn, Stream
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import nimble
from nimble import zoo
from nimble.capture import Target, build
from nimble.capture.structure import flatten
from nimble.capture.trace import trace
from nimble.devices.cuda import Cuda
from nimble.engine import engine as engines
from nimble.errors import InputError
from nimble.signature import ambient


class Elsewhere(StandIn):
    """Captures nothing: what is launched runs at once, and computes nothing."""

    place = torch.device("meta")

    def allocate(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.place)

    @contextlib.contextmanager
    def capture(self, graph: Graph, stream: Stream) -> Iterator[None]:
        with self.on(stream):
            yield

    def replay(self, graph: Graph) -> None:
        self.replays += 1


@pytest.fixture(autouse=True)
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it pass for a device: PyTorch has no autocast there, and calls its kernels otherwise."""
    monkeypatch.setattr(engines, "ambient", lambda place: ambient(torch.device("cpu")))
    monkeypatch.setattr(build, "why_refused", lambda op, place: None)


def there(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model, args = zoo.build(name)
    assert isinstance(model, nn.Module)
    return model.to("meta"), tuple(arg.to("meta") for arg in args)


@pytest.mark.parametrize("name", ["mlp", "squeezenet@32"])
def test_an_engine_takes_tensors_of_its_device(name: str) -> None:
    model, args = there(name)
    cuda = Elsewhere()
    engine = nimble.compile(model, args, device=Cuda(cuda), tune="off", progress=False)
    for _ in range(2):
        result = engine(*args)
        assert result.device.type == "meta"
        assert result.shape == model(*args).shape
    assert cuda.replays == 2
    assert "launches      1 captured graph" in engine.explain()
    assert engine.bind(*args).device.type == "meta"
    engine.run()
    with pytest.raises(InputError, match="is on cpu; this engine runs on meta"):
        engine(args[0].new_zeros(args[0].shape, device="cpu"))


def on_fake_gpu(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    with mode:
                        new = torch.empty_like(tensor, device="cuda:0")
                    held[name] = nn.Parameter(new, False) if held is part._parameters else new
    return module


@pytest.mark.parametrize("gpu", [False, True])
def test_layers_are_traced_without_cudnn_on_a_gpu(gpu: bool) -> None:
    """Its batch norm updates statistics in secret."""
    enabled: list[bool] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        enabled.append(torch.backends.cudnn.enabled)
        return x + 1

    with FakeTensorMode() if gpu else contextlib.nullcontext():
        x = torch.empty(3, device="cuda:0" if gpu else "cpu")
    tensors, structure = flatten(((x,), {}))
    trace(Target(model, {}), tensors, structure, ["x"])
    assert enabled == [not gpu]
    assert torch.backends.cudnn.enabled, "as before"


@pytest.mark.parametrize("name", ["mlp", "lstm@8", "squeezenet@32"])
def test_networks_are_traced_where_they_are(name: str) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model, args = zoo.build(name)
    on_fake_gpu(model, mode)
    with mode:
        given = tuple(torch.empty_like(arg, device="cuda:0") for arg in args)
    tensors, structure = flatten((given, {}))
    called = [f"x{place}" for place in range(len(tensors))]
    module = trace(Target(model, {"": model}), tensors, structure, called).module
    made: list[Any] = torch.utils._pytree.tree_leaves(
        [n.meta.get("val") for n in module.graph.nodes]
    )
    assert {str(t.device) for t in made if isinstance(t, torch.Tensor)} == {"cuda:0"}
