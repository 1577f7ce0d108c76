"""A watch notices every way in which a module's parameters can change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from aten_program import Program

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


CHANGES = [write, swap_data, transpose_data, replace, delete, load, add_bias]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: Callable[[torch.nn.Linear], None]) -> None:
    module = torch.nn.Linear(3, 3, bias=False)
    watch = watched(module)
    assert not watch.changed()
    change(module)
    assert watch.changed()


def counting(repeatable: bool, streams: int = 2) -> tuple[Program, torch.Tensor]:
    """Picks from four numbers, and counts how often it has."""
    program, counter = Program(), torch.zeros(1)
    index = program.input(torch.zeros(1, dtype=torch.int64))
    count = program.memory(counter, mutated=True)
    numbers, one, picked = program.memory(torch.arange(4.0)), program.scratch(1), program.output(1)
    program.call("ones", [[1]], one)
    program.call("add_.Tensor", [count, one])
    program.call("index_select", [numbers, 0, index], picked)
    return program.plan(streams=streams, repeatable=repeatable), counter


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_replay_notices_a_change(
    change: Callable[[torch.nn.Linear], None], repeatable: bool, streams: int
) -> None:
    module = torch.nn.Linear(3, 3, bias=False)
    watch = watched(module)
    program, counter = counting(repeatable, streams)
    for _ in range(3):
        assert program(torch.tensor([2]), watch=watch)[0] == 2
    change(module)
    with pytest.raises(_aten.Changed):
        program(torch.tensor([2]), watch=watch)
    assert counter == (4 if repeatable else 3)


def test_what_is_used_in_place_is_looked_at_before_a_replay() -> None:
    used = torch.nn.Parameter(torch.zeros(3))
    watch = _aten.Watch([], [], [used])
    program, counter = counting(repeatable=True)
    with torch.no_grad():
        used.add_(1)
    program(torch.tensor([2]), watch=watch)
    used.data = torch.zeros(3)
    with pytest.raises(_aten.Changed):
        program(torch.tensor([2]), watch=watch)
    assert counter == 1


def test_a_replay_that_fails_after_a_change_is_to_be_made_again() -> None:
    tensor = torch.zeros(3)
    watch = _aten.Watch([tensor], [])
    program, _ = counting(repeatable=True)
    with pytest.raises(IndexError):
        program(torch.tensor([7]), watch=watch)
    tensor.add_(1)
    with pytest.raises(_aten.Changed):
        program(torch.tensor([7]), watch=watch)


def test_shapes_of_many_dimensions_are_looked_at_too() -> None:
    tensor = torch.zeros(1, 2, 1, 2, 1, 2)
    watch = _aten.Watch([tensor], [])
    program, _ = counting(repeatable=True)
    program(torch.tensor([1]), watch=watch)
    tensor.data = tensor.data.transpose(1, 3)
    with pytest.raises(_aten.Changed):
        program(torch.tensor([1]), watch=watch)


def test_reset_takes_tensors_as_they_were_seen() -> None:
    module = torch.nn.Linear(3, 3)
    watch = watched(module)
    write(module)
    seen = watch.look()
    watch.reset(seen)
    assert not watch.changed()
    write(module)
    watch.reset(seen)
    assert watch.changed()


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
