"""Models that nobody here wrote: small, with random weights, and never fetched from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import foreign
import torch
from catalogue_media import media_models
from catalogue_text import Made, Row, text_models
from torch import Tensor, nn

from nimble import zoo


@dataclass(frozen=True)
class Entry:
    """`build` gives a model in eval mode and its arguments, the same ones every time."""

    name: str
    family: str
    package: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]

    @property
    def installed(self) -> bool:
        return foreign.installed(self.package)


def of_timm() -> Iterator[Row]:
    def image(model: str, size: int = 64, **settings: Any) -> Callable[[], Made]:
        def make() -> Made:
            made = foreign.load("timm").create_model(model, **settings)
            return made, (torch.randn(1, 3, size, size),), {}

        return make

    convolutions = (
        "resnet18 resnest14d skresnet18 regnety_002 mobilenetv3_small_050 mobilenetv4_conv_small "
        "mobileone_s0 repvgg_a0 ghostnet_050 hrnet_w18_small dla46_c dpn48b ese_vovnet19b_slim_dw "
        "tinynet_e convnext_atto convnextv2_atto inception_next_atto gcresnext26ts test_nfnet "
        "hgnetv2_b0 mambaout_femto"
    )
    mixed = "lambda_resnet26t fastvit_t8 poolformer_s12 edgenext_xx_small mobilevit_xxs pvt_v2_b0"
    for name in convolutions.split():
        yield name, "cnn", image(name)
    for name in mixed.split():
        yield name, "cnn with attention", image(name)
    for name in ("levit_128s", "tiny_vit_5m_224", "visformer_tiny"):
        yield name, "cnn with attention", image(name, 224)
    for name in ("xcit_nano_12_p16_224", "gmlp_ti16_224", "pit_ti_224"):
        yield name, "vision", image(name, 224)
    yield "eva02_tiny", "vision", image("eva02_tiny_patch14_224", 56, img_size=56)
    yield "crossvit_tiny", "vision", image("crossvit_tiny_240", 240)
    yield "resnet18_pyramid", "detection", image("resnet18", features_only=True)


def of_torchvision() -> Iterator[Row]:
    def model(path: str, *inputs: tuple[int, ...], **settings: Any) -> Callable[[], Made]:
        module, name = path.rsplit(".", 1)

        def make() -> Made:
            made = getattr(foreign.load(f"torchvision.models{module}"), name)(**settings)
            return made, tuple(torch.randn(shape) for shape in inputs), {}

        return make

    unfetched = {"weights": None, "weights_backbone": None}
    pair = (2, 3, 64, 64)
    yield "shufflenet_v2", "cnn", model(".shufflenet_v2_x0_5", pair)
    yield "mnasnet", "cnn", model(".mnasnet0_5", pair)
    lraspp = ".segmentation.lraspp_mobilenet_v3_large"
    yield "lraspp", "segmentation", model(lraspp, pair, **unfetched)
    deeplab = ".segmentation.deeplabv3_mobilenet_v3_large"
    yield "deeplabv3", "segmentation", model(deeplab, pair, **unfetched)
    fpn = {"backbone_name": "mobilenet_v3_small", "fpn": True, "weights": None}
    fpn["norm_layer"] = nn.BatchNorm2d
    backbone = ".detection.backbone_utils.mobilenet_backbone"
    yield "feature_pyramid", "detection", model(backbone, pair, **fpn)


def of_torch() -> Iterator[Row]:
    def layer(made: Callable[[], nn.Module], *inputs: tuple[int, ...]) -> Callable[[], Made]:
        return lambda: (made(), tuple(torch.randn(shape) for shape in inputs), {})

    sequence, memory = (2, 10, 32), (2, 12, 32)
    both = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    yield "nn_lstm", "recurrent", layer(lambda: nn.LSTM(32, 24, **both), sequence)
    yield "nn_lstm_projected", "recurrent", layer(lambda: nn.LSTM(32, 24, proj_size=8), sequence)
    yield "nn_gru", "recurrent", layer(lambda: nn.GRU(32, 24, **both), sequence)
    yield "nn_rnn", "recurrent", layer(lambda: nn.RNN(32, 24, nonlinearity="relu"), sequence)
    size = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "batch_first": True}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    transformer = layer(lambda: nn.Transformer(**size, **layers), memory, sequence)
    yield "nn_transformer", "encoder-decoder", transformer

    def encoder() -> nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(**size), 2)

    def decoder() -> nn.Module:
        return nn.TransformerDecoder(nn.TransformerDecoderLayer(**size), 2)

    def masked() -> Made:
        padding = torch.arange(10) >= torch.tensor([[10], [7]])
        module = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**size, norm_first=True), 2, enable_nested_tensor=False
        )
        return module, (torch.randn(sequence),), {"src_key_padding_mask": padding}

    def attention() -> Made:
        query, key = torch.randn(sequence), torch.randn(memory)
        return nn.MultiheadAttention(32, 4, batch_first=True), (query, key, key), {}

    yield "nn_transformer_encoder", "encoder", layer(encoder, sequence)
    yield "nn_transformer_encoder_masked", "encoder", masked
    yield "nn_transformer_decoder", "decoder", layer(decoder, sequence, memory)
    yield "nn_multihead_attention", "encoder", attention


def of_torch_geometric() -> Iterator[Row]:
    nodes, edges = 20, 60

    def network(model: str, *sizes: int, **settings: Any) -> Callable[[], Made]:
        def make() -> Made:
            made = getattr(foreign.load("torch_geometric.nn"), model)(*sizes, **settings)
            return made, (torch.randn(nodes, 16), torch.randint(nodes, (2, edges))), {}

        return make

    stack = (16, 32, 3, 8)
    for name in ("GraphSAGE", "EdgeCNN"):
        yield name.lower(), "graph", network(name, *stack)
    yield "gin", "graph", network("GIN", *stack, norm="batch_norm", jk="cat")
    degrees = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
    pna = network("PNA", *stack, **degrees, deg=torch.tensor([1, 4, 6, 5, 3, 1]))
    yield "pna", "graph", pna
    yield "graph_transformer", "graph", network("TransformerConv", 16, 8, heads=4)
    yield "gated_graph", "graph", network("GatedGraphConv", 16, num_layers=3)
    yield "heterogeneous", "graph", _heterogeneous


def _heterogeneous() -> Made:
    """Nodes and edges of several types, so that inputs and outputs are dictionaries."""
    kinds = [("user", "buys", "item"), ("item", "bought_by", "user"), ("user", "knows", "user")]
    pyg = foreign.load("torch_geometric.nn")
    sizes = {"user": 16, "item": 12}
    model = pyg.HeteroConv({k: pyg.SAGEConv((sizes[k[0]], sizes[k[2]]), 32) for k in kinds})
    features = {"user": torch.randn(10, 16), "item": torch.randn(10, 12)}
    edges: dict[tuple[str, str, str], Tensor] = {}
    for source, name, target in kinds:
        edges[source, name, target] = torch.randint(10, (2, 30))
    return model, (features, edges), {}


def _entries(package: str, rows: Iterator[Row]) -> Iterator[Entry]:
    for name, family, make in rows:
        yield Entry(name, family, package, _lively(make))


def _lively(make: Callable[[], Made]) -> Callable[[], Made]:
    """Seeded, and with weights and statistics that let outputs depend on inputs."""

    def build() -> Made:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model, args, kwargs = make()
        model.eval()
        zoo.enliven(model)
        zoo.calibrate(model, args, kwargs)
        return model, args, kwargs

    return build


CATALOGUE: tuple[Entry, ...] = (
    *_entries("torch", of_torch()),
    *_entries("timm", of_timm()),
    *_entries("torchvision", of_torchvision()),
    *_entries("transformers", text_models()),
    *_entries("transformers", media_models()),
    *_entries("torch_geometric", of_torch_geometric()),
)
