"""`zoo.build`: names, seeds, and outputs that depend on every input and weight."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from nimble import zoo
from nimble.zoo.gpt2 import GPT2Step

SMALL = {
    # The size at which a network is still itself, but quick.
    "resnet50": 64,
    "resnet101": 64,
    "inception_v3": 96,
    "googlenet": 64,
    "mobilenet_v2": 64,
    "nasnet_a_mobile": 64,
    "nasnet_a_large": 32,
    "amoebanet": 64,
    "darts": 64,
    "randwire": 64,
    "efficientnet_b0": 64,
    "efficientnet_b5": 64,
    "squeezenet": 64,
    "densenet121": 64,
    "densenet201": 64,
    "unet": 32,
    "vit_tiny": 64,
    "bert_base": 16,
    "bert_tiny": 16,
    "gpt2_step": 16,
    "lstm": 8,
    "gru": 8,
    "mlp": 64,
    "gnn": 32,
}
QUICK = {"mobilenet_v2", "googlenet", "squeezenet", "vit_tiny", "bert_tiny"}
QUICK |= {"lstm", "gru", "mlp", "gnn"}


def test_every_network_is_tested_here() -> None:
    assert set(SMALL) == set(zoo.names())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.full]) for n in SMALL]
)
def test_outputs_depend_on_inputs_and_no_parameter_hides(name: str) -> None:
    model, inputs = zoo.build(f"{name}@{SMALL[name]}")
    assert not model.training
    for parameter in model.parameters():
        assert parameter.numel() == 1 or parameter.min() < parameter.max()
    with torch.no_grad():
        first = tree_leaves(model(*inputs))
        second = tree_leaves(model(*zoo.random_like(inputs, seed=1)))
    for a, b in zip(first, second, strict=True):
        assert difference(a, b) >= 1e-2
        assert a.abs().max() < 1e3


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / a.abs().max())


def test_name_carries_size_and_batch() -> None:
    _, (image,) = zoo.build("mobilenet_v2@32x2")
    assert image.shape == (2, 3, 32, 32)
    _, (ids,) = zoo.build("bert_tinyx3")
    assert ids.shape == (3, 128)
    _, (features, edges) = zoo.build("gnn@10x2")
    assert features.shape == (20, 64)
    assert edges.shape == (2, 80)


@pytest.mark.parametrize("name", ["resnet51", "resnet51@224", ""])
def test_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"no network .* expected one of resnet50, .*@224x8"):
        zoo.build(name)


def test_seed_alone_decides_the_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model, inputs = zoo.build("mobilenet_v2@32", seed=3)
    assert torch.equal(torch.get_rng_state(), before)

    torch.manual_seed(2)
    again, same_inputs = zoo.build("mobilenet_v2@32", seed=3)
    assert torch.equal(inputs[0], same_inputs[0])
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)

    other, _ = zoo.build("mobilenet_v2@32", seed=4)
    assert not torch.equal(next(model.parameters()), next(other.parameters()))


def test_decoding_step_remembers_what_it_saw() -> None:
    model = GPT2Step(length=8, layers=2, hidden=32, heads=2)
    token = torch.tensor([[7]])
    with torch.no_grad():
        model(token, torch.tensor([0]))
        after_one = model(token, torch.tensor([1]))
        model(token + 1, torch.tensor([0]))
        after_another = model(token, torch.tensor([1]))
    assert difference(after_one, after_another) >= 1e-2


def test_other_integers_are_in_range_and_not_the_same():
    for given in (torch.tensor([1, 2]), torch.tensor([3, 7, 5]), torch.tensor([2])):
        for seed in range(20):
            other = zoo.random_like(given, seed=seed)
            assert not torch.equal(other, given)
            assert other.max() <= given.max()
            assert other.min() >= (given.min() if len(given) > 1 else 0)


def test_layers_without_weights_are_enlivened() -> None:
    model = torch.nn.Linear(4, 1, bias=False)
    model.weight = torch.nn.Parameter(torch.empty(0, 4))
    zoo.enliven(model)
    assert model(torch.ones(2, 4)).shape == (2, 0)
