"""With the same weights, the zoo's networks compute what well-known implementations compute."""

from __future__ import annotations

import warnings

import foreign
import pytest
import torch
from torch import Tensor, nn

from nimble import zoo
from nimble.zoo.gpt2 import GPT2Step


def need(*packages: str) -> None:
    for package in packages:
        if not foreign.installed(package):
            pytest.skip(f"{package} is not installed")


def adopt(theirs: nn.Module, ours: nn.Module) -> None:
    """Gives their module our weights, which both register in the same order."""
    weights = dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True))
    theirs.load_state_dict(weights, assign=True)


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


@pytest.mark.parametrize(
    ("name", "theirs", "size"),
    [
        ("googlenet", "googlenet", 64),
        ("mobilenet_v2", "mobilenet_v2", 64),
        ("squeezenet", "squeezenet1_1", 64),
        pytest.param("resnet50", "resnet50", 64, marks=pytest.mark.full),
        pytest.param("inception_v3", "inception_v3", 96, marks=pytest.mark.full),
        pytest.param("densenet121", "densenet121", 64, marks=pytest.mark.full),
        pytest.param("densenet201", "densenet201", 64, marks=pytest.mark.full),
        pytest.param("efficientnet_b0", "efficientnet_b0", 64, marks=pytest.mark.full),
        pytest.param("efficientnet_b5", "efficientnet_b5", 64, marks=pytest.mark.full),
    ],
)
def test_torchvision(name: str, theirs: str, size: int) -> None:
    need("torchvision")
    arguments = {"aux_logits": False} if name in ("inception_v3", "googlenet") else {}
    with warnings.catch_warnings(action="ignore"), torch.device("meta"):
        reference = getattr(foreign.load("torchvision.models"), theirs)(**arguments).eval()
    model, inputs = zoo.build(f"{name}@{size}")
    adopt(reference, model)
    with torch.no_grad():
        assert_same(model(*inputs), reference(*inputs))


def test_vit_tiny() -> None:
    need("timm")
    reference = foreign.load("timm").create_model("vit_tiny_patch16_224", img_size=64).eval()
    model, inputs = zoo.build("vit_tiny@64")
    adopt(reference, model)
    with torch.no_grad():
        assert_same(model(*inputs), reference(*inputs))


def test_bert() -> None:
    need("transformers")
    transformers = foreign.load("transformers")
    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    reference = transformers.BertModel(config).eval()
    model, (ids,) = zoo.build("bert_tiny@16x2")
    adopt(reference, model)
    with torch.no_grad():
        hidden, pooled = model(ids)
        expected = reference(ids)
    assert_same(hidden, expected.last_hidden_state)
    assert_same(pooled, expected.pooler_output)


def test_gpt2_decodes_step_by_step_what_all_at_once_gives() -> None:
    need("transformers")
    transformers = foreign.load("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4)
    reference = transformers.GPT2Model(config).eval()
    model = GPT2Step(length=8, layers=2, hidden=64, heads=4)
    zoo.enliven(model)
    with torch.no_grad():
        ours = model.state_dict().values()
        for (name, theirs), weight in zip(reference.state_dict().items(), ours, strict=True):
            transposed = ".c_" in name and name.endswith("weight")
            theirs.copy_(weight.T if transposed else weight)
        ids = torch.randint(1000, (1, 5))
        steps = [model(ids[:, i : i + 1], torch.tensor([i])) for i in range(5)]
        expected = reference(ids).last_hidden_state @ model.words.weight.T
    assert_same(torch.cat(steps, 1), expected)


def test_graph_network() -> None:
    need("torch_geometric")
    sage = foreign.load("torch_geometric.nn").GraphSAGE(64, 128, 3, 16).eval()
    model, inputs = zoo.build("gnn@32")
    with torch.no_grad():
        for i, conv in enumerate(sage.convs):
            conv.lin_r.weight.copy_(model.get_parameter(f"own.{i}.weight"))
            conv.lin_l.bias.copy_(model.get_parameter(f"own.{i}.bias"))
            conv.lin_l.weight.copy_(model.get_parameter(f"others.{i}.weight"))
        assert_same(model(*inputs), sage(*inputs))


@pytest.mark.parametrize(("name", "layer"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_recurrent(name: str, layer: type[nn.RNNBase]) -> None:
    reference = layer(64, 64, batch_first=True)
    model, inputs = zoo.build(f"{name}@8x2")
    adopt(reference, model)
    with torch.no_grad():
        assert_same(model(*inputs), reference(*inputs)[0])
