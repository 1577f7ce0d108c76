"""What the catalogue promises about its models, so that tests can lean on it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from catalogue import CATALOGUE, Entry
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from nimble import zoo

QUICK = {"nn_lstm", "nn_transformer", "tinynet_e", "llama_step", "detr", "clip", "gat", "mixtral"}


def marked(entry: Entry) -> Any:
    marks = [] if entry.name in QUICK else [pytest.mark.full]
    return pytest.param(entry, id=entry.name, marks=marks)


def build(entry: Entry) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    if not entry.installed:
        pytest.skip(f"{entry.package} is not installed")
    with warnings.catch_warnings(action="ignore"):
        return entry.build()


def run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        return model(*args, **kwargs)


def floats(tree: Any) -> list[Tensor]:
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    return [t.double() for t in tensors if t.is_floating_point() and t.numel() > 0]


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def test_names_are_unique_and_there_are_many_of_every_kind() -> None:
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE) >= 60
    assert {entry.family for entry in CATALOGUE} >= {
        *("cnn", "encoder", "decoder", "encoder-decoder", "recurrent", "graph", "experts"),
        *("detection", "segmentation", "audio", "video", "vision", "vision-language"),
    }


@pytest.mark.parametrize("entry", [marked(entry) for entry in CATALOGUE])
def test_model_is_small_repeatable_and_lets_no_wrong_answer_hide(entry: Entry) -> None:
    model, args, kwargs = build(entry)
    assert not any(module.training for module in model.modules())
    assert sum(p.numel() * p.element_size() for p in model.parameters()) < 100e6

    outputs, structure = tree_flatten(run(model, args, kwargs))
    assert all(leaf is None or isinstance(leaf, Tensor) for leaf in outputs)
    for a, b in zip(floats(outputs), floats(run(model, args, kwargs)), strict=True):
        assert torch.equal(a, b)

    others = run(model, *zoo.random_like((args, kwargs), seed=1))
    for a, b in zip(floats(others), floats(outputs), strict=True):
        assert difference(a, b) >= 1e-2

    doubled = tree_map_only(
        Tensor, lambda t: t.double() if t.is_floating_point() else t, (args, kwargs)
    )
    exact, same_structure = tree_flatten(run(copy.deepcopy(model).double(), *doubled))
    assert same_structure == structure
    for a, b in zip(floats(outputs), floats(exact), strict=True):
        assert difference(a, b) < 1e-3


@pytest.mark.parametrize("entry", [marked(entry) for entry in CATALOGUE])
def test_trace_computes_what_the_model_computes(entry: Entry) -> None:
    model, args, kwargs = build(entry)
    run(model, args, kwargs)
    with warnings.catch_warnings(action="ignore"):
        traced = trace(model, args, kwargs)
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    others = zoo.random_like((args, kwargs), seed=1)
    with torch.no_grad():
        found = traced(state, *others)
    for a, b in zip(floats(found), floats(run(model, *others)), strict=True):
        assert difference(a, b) < 1e-4


def trace(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
    def call(state: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return torch.func.functional_call(model, state, args, kwargs)

    state = dict(model.named_parameters()) | dict(model.named_buffers())
    functional = torch.func.functionalize(call, remove="mutations")
    tracer = make_fx(functional, tracing_mode="fake", _allow_non_fake_inputs=True)
    # Without it, models of transformers look into masks to see whether they can be left out.
    with torch.compiler._compile_session_context():
        return tracer(state, args, kwargs)
