"""A watch notices every way in which a module's parameters can change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from nimble import _aten


def watched(module: torch.nn.Module) -> _aten.Watch:
    tensors = list(module.parameters())
    places = [
        (part._parameters, name, value)
        for part in module.modules()
        for name, value in part._parameters.items()
    ]
    return _aten.Watch(tensors, places)


def write(module: torch.nn.Linear) -> None:
    with torch.no_grad():
        module.weight.zero_()


def swap_data(module: torch.nn.Linear) -> None:
    module.weight.data = torch.zeros(3, 3)


def transpose_data(module: torch.nn.Linear) -> None:
    module.weight.data = module.weight.data.t()


def replace(module: torch.nn.Linear) -> None:
    module.weight = torch.nn.Parameter(module.weight.detach())


def delete(module: torch.nn.Linear) -> None:
    del module.weight


def load(module: torch.nn.Linear) -> None:
    module.load_state_dict(torch.nn.Linear(3, 3, bias=False).state_dict())


def add_bias(module: torch.nn.Linear) -> None:
    module.bias = torch.nn.Parameter(torch.zeros(3))


@pytest.mark.parametrize(
    "change", [write, swap_data, transpose_data, replace, delete, load, add_bias]
)
def test_a_change_is_noticed(change: Callable[[torch.nn.Linear], None]) -> None:
    module = torch.nn.Linear(3, 3, bias=False)
    watch = watched(module)
    assert not watch.changed()
    change(module)
    assert watch.changed()


def test_reset_takes_tensors_as_they_are_now() -> None:
    module = torch.nn.Linear(3, 3)
    watch = watched(module)
    write(module)
    watch.reset()
    assert not watch.changed()


def test_reading_is_no_change() -> None:
    module = torch.nn.Linear(3, 3)
    watch = watched(module)
    module(torch.ones(3)).sum().backward()
    module.state_dict()
    assert not watch.changed()


def test_inference_tensors_have_no_version_but_can_be_watched() -> None:
    with torch.inference_mode():
        tensor = torch.zeros(3)
    watch = _aten.Watch([tensor], [])
    assert not watch.changed()


def test_tensors_of_any_device_can_be_watched() -> None:
    tensor = torch.zeros(3, device="meta")
    watch = _aten.Watch([tensor], [], [torch.zeros(2, device="meta")])
    assert not watch.changed()
    tensor.add_(1)
    assert watch.changed()


def test_only_ordinary_tensors_can_be_watched() -> None:
    with pytest.raises(ValueError, match="ordinary"):
        _aten.Watch([torch.zeros(3).to_sparse()], [])


def test_a_module_that_holds_its_own_watch_is_collected() -> None:
    module = torch.nn.Linear(3, 3)
    module.watch = watched(module)  # type: ignore[assignment]
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
