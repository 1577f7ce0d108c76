"""The networks by name, and the inputs each of them takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nimble.zoo.batch_norm import calibrate
from nimble.zoo.bert import VOCABULARY, Bert
from nimble.zoo.cells import AMOEBANET, DARTS, CellNetwork
from nimble.zoo.densenet import densenet
from nimble.zoo.efficientnet import efficientnet
from nimble.zoo.gnn import GraphNetwork
from nimble.zoo.googlenet import googlenet
from nimble.zoo.gpt2 import VOCABULARY as GPT2_VOCABULARY
from nimble.zoo.gpt2 import GPT2Step
from nimble.zoo.inception import inception_v3
from nimble.zoo.mlp import mlp
from nimble.zoo.mobilenet import mobilenet_v2
from nimble.zoo.nasnet import nasnet_a
from nimble.zoo.randwire import randwire
from nimble.zoo.recurrent import UnrolledGRU, UnrolledLSTM
from nimble.zoo.resnet import resnet
from nimble.zoo.squeezenet import squeezenet
from nimble.zoo.unet import UNet
from nimble.zoo.vit import VisionTransformer
from nimble.zoo.weights import enliven


@dataclass(frozen=True, slots=True)
class Recipe:
    """`make` and `inputs` take a size (`size` unless the name gives one) and a batch."""

    make: Callable[[int, int], nn.Module]
    inputs: Callable[[int, int], tuple[Tensor, ...]]
    size: int


def _image(size: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 3, size, size),)


def _ids(size: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(VOCABULARY, (batch, size)),)


def _sequence(size: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, size, 64),)


def _vector(size: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, size),)


def _token_and_position(size: int, batch: int) -> tuple[Tensor, ...]:
    return torch.randint(GPT2_VOCABULARY, (batch, 1)), torch.tensor([size // 2])


def _nodes_and_edges(size: int, batch: int) -> tuple[Tensor, ...]:
    nodes = size * batch
    return torch.randn(nodes, 64), torch.randint(nodes, (2, 4 * nodes))


RECIPES = {
    "resnet50": Recipe(lambda size, batch: resnet((3, 4, 6, 3)), _image, 224),
    "resnet101": Recipe(lambda size, batch: resnet((3, 4, 23, 3)), _image, 224),
    "inception_v3": Recipe(lambda size, batch: inception_v3(), _image, 299),
    "googlenet": Recipe(lambda size, batch: googlenet(), _image, 224),
    "mobilenet_v2": Recipe(lambda size, batch: mobilenet_v2(), _image, 224),
    "nasnet_a_mobile": Recipe(lambda size, batch: nasnet_a(4, 1056, 32), _image, 224),
    "nasnet_a_large": Recipe(lambda size, batch: nasnet_a(6, 4032, 96), _image, 331),
    "amoebanet": Recipe(lambda size, batch: CellNetwork(AMOEBANET), _image, 224),
    "darts": Recipe(lambda size, batch: CellNetwork(DARTS), _image, 224),
    "randwire": Recipe(lambda size, batch: randwire(), _image, 224),
    "efficientnet_b0": Recipe(lambda size, batch: efficientnet(), _image, 224),
    "efficientnet_b5": Recipe(
        lambda size, batch: efficientnet(1.6, 2.2, dropout=0.4, eps=1e-3), _image, 456
    ),
    "squeezenet": Recipe(lambda size, batch: squeezenet(), _image, 224),
    "densenet121": Recipe(lambda size, batch: densenet(), _image, 224),
    "densenet201": Recipe(lambda size, batch: densenet((6, 12, 48, 32)), _image, 224),
    "unet": Recipe(lambda size, batch: UNet(), _image, 128),
    "vit_tiny": Recipe(lambda size, batch: VisionTransformer(size), _image, 224),
    "bert_base": Recipe(lambda size, batch: Bert(), _ids, 128),
    "bert_tiny": Recipe(lambda size, batch: Bert(2, 128, 2), _ids, 128),
    "gpt2_step": Recipe(GPT2Step, _token_and_position, 256),
    "lstm": Recipe(lambda size, batch: UnrolledLSTM(), _sequence, 32),
    "gru": Recipe(lambda size, batch: UnrolledGRU(), _sequence, 32),
    "mlp": Recipe(lambda size, batch: mlp(width=size), _vector, 64),
    "gnn": Recipe(lambda size, batch: GraphNetwork(), _nodes_and_edges, 256),
}


def names() -> list[str]:
    """The networks that `build` knows."""
    return list(RECIPES)


def build(name: str, *, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network in eval mode with random weights, and inputs for it.

    The name may carry a size and a batch, as in `resnet50@224x8`. The size is the resolution of
    images, the length of sequences or of the cache, the number of nodes or the width of the mlp.

    >>> model, inputs = build("bert_tiny@16x2")
    >>> inputs[0].shape
    torch.Size([2, 16])
    """
    recipe, size, batch = parse(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = recipe.make(size, batch).eval()
        inputs = recipe.inputs(size, batch)
    enliven(model, seed=seed)
    calibrate(model, inputs)
    return model, inputs


def untrained(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network in eval mode with the weights that PyTorch draws, and inputs for it: at once, where
    only shapes matter."""
    recipe, size, batch = parse(name)
    with torch.random.fork_rng(devices=[]):
        return recipe.make(size, batch).eval(), recipe.inputs(size, batch)


def count(name: str) -> tuple[int, int]:
    """How many parameters a network has, and how many multiply-accumulates a call takes."""
    model, inputs = on_meta(name)
    with FlopCounterMode(display=False) as flops, torch.no_grad():
        model(*inputs)
    return sum(p.numel() for p in model.parameters()), flops.get_total_flops() // 2


def input_shapes(name: str) -> list[tuple[int, ...]]:
    """The shapes of what a network is called with."""
    recipe, size, batch = parse(name)
    with torch.device("meta"):
        return [tuple(tensor.shape) for tensor in recipe.inputs(size, batch)]


def on_meta(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network and inputs without contents: shapes only."""
    recipe, size, batch = parse(name)
    with torch.device("meta"):
        return recipe.make(size, batch).eval(), recipe.inputs(size, batch)


def parse(name: str) -> tuple[Recipe, int, int]:
    """What a name stands for: a recipe, a size and a batch."""
    match = re.fullmatch(r"(\w+?)(?:@(\d+))?(?:x(\d+))?", name)
    network, _, size = name.partition("@")
    if match is None and network in RECIPES:
        raise ValueError(
            f"{name!r}: {size!r} is no size of {network}; expected a number, and x and a batch if "
            f"you like, as in {network}@{RECIPES[network].size}x8"
        )
    if match is None or match[1] not in RECIPES:
        raise ValueError(
            f"no network {name!r}; expected one of {', '.join(RECIPES)}, "
            "optionally followed by @size and xbatch as in resnet50@224x8"
        )
    recipe = RECIPES[match[1]]
    chosen, batch = int(match[2] or recipe.size), int(match[3] or 1)
    if chosen < 1 or batch < 1:
        raise ValueError(f"{name!r}: expected a size and a batch from 1 up")
    return recipe, chosen, batch
