"""Lowered graphs compute what they did before, whole and in tiles, on one stream and on several."""

import pytest
import torch
from lowered import agree
from torch import nn

import nimble
from nimble import zoo

SMALL = {
    "resnet50": "64", "inception_v3": "96", "googlenet": "64", "mobilenet_v2": "32x2",
    "nasnet_a_mobile": "64", "darts": "64", "efficientnet_b0": "64", "squeezenet": "64",
    "densenet121": "64", "randwire": "64", "bert_tiny": "32x2", "gpt2_step": "16",
    "vit_tiny": "64", "lstm": "6", "gru": "6", "mlp": "64x3", "gnn": "32", "unet": "32",
}  # fmt: skip


LONG = {"nasnet_a_mobile", "darts", "densenet121", "randwire"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] if n in LONG else []) for n in SMALL]
)
def test_networks(name):
    model, args = zoo.build(f"{name}@{SMALL[name]}")
    lowered, tiled = agree(model, *args)
    assert len(tiled.tasks) > len(lowered.tasks)


def ops(graph):
    return [task.op for task in graph.tasks]


def test_a_concatenation_costs_nothing():
    model = nn.ModuleList([nn.Conv2d(3, 8, 1), nn.Conv2d(3, 24, 3, padding=1)])

    def run(x):
        return torch.relu(torch.cat([branch(x) for branch in model], 1)).mean((2, 3))

    lowered, _ = agree(run, torch.randn(1, 3, 6, 6))
    assert not any("cat" in op or "copy" in op for op in ops(lowered)[1:])


def test_a_dense_block_is_one_buffer():
    layers = nn.ModuleList(nn.Conv2d(4 + 4 * i, 4, 3, padding=1) for i in range(4))

    def run(x):
        x = torch.relu(x * 2)
        for layer in layers:
            x = torch.cat([x, torch.relu(layer(x))], 1)
        return x.mean((2, 3))

    lowered, _ = agree(run, torch.randn(1, 4, 6, 6))
    assert "aten.cat.default" not in ops(lowered)
    assert ops(lowered).count("nimble.copy") <= 1


def test_a_concatenation_is_a_view_only_for_kernels_that_can_read_it():
    layer = nn.Conv2d(6, 8, 1)

    def run(x):
        return layer(torch.cat([x[:, :3], x[:, 3:]], 1))

    agree(run, torch.randn(2, 6, 4, 4))


def test_a_residual_and_its_activation_are_the_end_of_a_convolution():
    layer = nn.Conv2d(8, 8, 3, padding=1)

    def run(x):
        y = torch.relu(x)
        return torch.relu(layer(y) + y).mean((2, 3))

    lowered, _ = agree(run, torch.randn(2, 8, 5, 7))
    assert ops(lowered).count("nimble.convolution") == 1
    assert ops(lowered).count("nimble.pointwise") <= 1


def test_a_chain_seen_in_another_shape_is_not_joined():
    lowered, _ = agree(lambda x: x.clamp(1).unsqueeze(1).reciprocal() * 2, torch.rand(16) * 4)
    assert ops(lowered) == ["nimble.pointwise"] * 2


@pytest.mark.parametrize("head", [nn.Linear(8, 8), nn.Identity()])
def test_a_chain_of_many_numbers_is_more_than_one(head):
    def run(x):
        x = head(x)
        for i in range(22):
            x = x * (1 - i / 100) + i / 7
        return x

    agree(run, torch.randn(4, 8))


def test_the_end_of_a_kernel_reads_only_so_many_operands():
    layer = nn.Linear(8, 8)

    def run(x, *others):
        x = layer(x)
        for other in others:
            x = x * other
        return x

    agree(run, torch.randn(4, 8), *(torch.rand(8) + 0.5 for _ in range(40)))


def test_a_chain_hands_out_only_so_many_values():
    def run(x):
        made = []
        for _ in range(20):
            made += [x * 1.1, torch.tanh(x * 1.1)]
            x = made[-1]
        return made

    agree(run, torch.randn(4, 8))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("counted", [False, True])
def test_pooling(padding, counted):
    layer = nn.Conv2d(3, 8, 1)

    def run(x):
        y = torch.relu(layer(x))
        mean = nn.functional.avg_pool2d(y, 3, 2, padding, count_include_pad=counted)
        return mean + nn.functional.max_pool2d(y, 3, 2, padding)

    lowered, _ = agree(run, torch.randn(1, 3, 11, 13))
    assert ops(lowered).count("nimble.pool") == 2


@pytest.mark.parametrize("ceil", [False, True])
def test_windows_that_reach_beyond_the_padding(ceil):
    layer = nn.Conv2d(3, 8, 1)
    agree(
        lambda x: nn.functional.avg_pool2d(torch.relu(layer(x)), 3, 2, 1, ceil_mode=ceil),
        torch.randn(1, 3, 8, 8),
    )


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_all_kinds(groups, stride):
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, stride, 1, groups=groups),
        nn.SiLU(),
        nn.Conv2d(8, 40, 1),
        nn.Hardswish(),
        nn.ConvTranspose2d(40, 8, 2, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
    ).eval()
    agree(model, torch.randn(2, 8, 9, 7))


def test_matrices_of_all_sizes():
    for rows in (1, 3, 13, 40):
        model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 7), nn.LayerNorm(7))
        agree(model, torch.randn(rows, 24))
        agree(lambda x, m=model: m(x) + x[..., :7], torch.randn(2, rows, 24))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    layer = nn.Linear(32, 96)

    def run(x):
        q, k, v = layer(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).flatten(2)

    lowered, _ = agree(run, torch.randn(2, 10, 32))
    assert "nimble.attention" in ops(lowered)


@pytest.mark.parametrize("masked", ["no mask", "one of each query", "one of all queries"])
@pytest.mark.parametrize(("heads", "queries", "parts"), [(3, 100, "queries"), (4, 100, "heads")])
def test_heads_that_come_out_uneven_share_the_queries(heads, queries, parts, masked):
    def run(q, k, v, *mask):
        return nn.functional.scaled_dot_product_attention(q, k, v, *mask)

    shape = {"one of each query": (queries, 70), "one of all queries": (1, 70)}.get(masked)
    masks = [torch.randn(shape)] if shape else []
    keys = [torch.randn(1, heads, 70, 8) for _ in range(2)]
    _, tiled = agree(run, torch.randn(1, heads, queries, 8), *keys, *masks)
    tiles = [task for task in tiled.tasks if task.op == "nimble.attention"]
    assert [tiled[tile.writes[0]].shape[1:3] for tile in tiles] == (
        [(3, 48), (3, 52)] if parts == "queries" else [(2, 100), (2, 100)]
    )


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 2, 1), (0, 1, 2, 2)])
def test_queries_are_shared_where_operands_are_the_same_tensor(place):
    def run(*given):
        return nn.functional.scaled_dot_product_attention(*(given[p] for p in place))

    _, tiled = agree(run, *(torch.randn(1, 1, 96, 96) for _ in range(max(place) + 1)))
    assert ops(tiled).count("nimble.attention") == 2


def test_heads_of_attention_are_no_channels():
    """A convolution makes patches; then 4-D tensors are not images, and attention wants them as
    they were."""

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut = nn.Conv2d(3, 24, 4, 4)
            self.qkv = nn.Linear(24, 72)
            self.register_buffer("turn", torch.randn(16, 8))

        def forward(self, x):
            x = self.cut(x).flatten(2).transpose(1, 2)
            q, k, v = self.qkv(x).view(1, 16, 3, 3, 8).permute(2, 0, 3, 1, 4)
            q = torch.cat([q[:, :, :1], q[:, :, 1:] * self.turn[1:]], 2)
            k = k * self.turn
            return nn.functional.scaled_dot_product_attention(q, k, v)

    model, x = Patches().eval(), torch.randn(1, 3, 16, 16)
    engine = nimble.compile(model, (x,))
    torch.testing.assert_close(engine(x), model(x))
    tasks = [task.op for task in engine.plans[0].lowered.tasks]
    assert "nimble.attention" in tasks


@pytest.mark.parametrize("options", [{"padding": "valid"}, {"padding": [1]}, {"stride": [2]}])
def test_one_number_stands_for_both_dimensions(options):
    weights = {1: torch.randn(8, 3, 3, 3), 3: torch.randn(3, 1, 3, 3)}
    for groups, weight in weights.items():

        def model(x, weight=weight, groups=groups):
            return nn.functional.conv2d(x, weight, groups=groups, **options).relu()

        x = torch.randn(1, 3, 9, 13)
        torch.testing.assert_close(nimble.compile(model, (x,))(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 16])
def test_a_convolution_whose_result_is_handed_out_runs_by_a_kernel_of_ours(groups):
    """Results have eager's strides, and kernels write channels innermost: there is a copy."""
    model, x = nn.Conv2d(16, 16, 3, padding=1, groups=groups), torch.randn(2, 16, 9, 7)
    engine = nimble.compile(model, (x,))
    assert set(engine.plans[0].replay.kinds.values()) == {"native"}
    got, wanted = engine(x), model(x).detach()
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert got.stride() == wanted.stride()


LAYER = nn.Linear(4, 4)
ITSELF = {
    "a row": lambda x: (y := x * 2) + y[0],
    "a column": lambda x: torch.maximum(y := x.tanh(), y[:, :1]) + y,
    "transposed": lambda x: (y := x.exp()) - y.t(),
    "between": lambda x: torch.where((y := x * 3) > 0, y.t(), y),
    "expanded": lambda x: (y := x * 2) * y[:, :1].expand(4, 4),
    "reversed": lambda x: (y := x + 1) * torch.sigmoid(y.as_strided((4, 4), (1, 4))),
    "after a layer": lambda x: (y := LAYER(x)) + y[:1],
    "after a layer, further on": lambda x: torch.relu(y := LAYER(x)) - y[0],
    "after a product": lambda x: (y := x @ x) + y.t(),
    "after a norm": lambda x: (y := nn.functional.layer_norm(x, (4,))) + y.t(),
}


@pytest.mark.parametrize("case", ITSELF)
def test_a_value_meets_other_elements_of_its_own(case):
    model, x = ITSELF[case], torch.randn(4, 4)
    with torch.no_grad():
        torch.testing.assert_close(nimble.compile(model, x)(x), model(x))


@pytest.mark.parametrize("length", [1, 24])
def test_a_chain_on_the_statistics_of_a_norm(length):
    def model(x, w, b):
        y, mean, deviation = torch.native_layer_norm(x, [length], w, b, 1e-5)
        return y, mean * 2, deviation + 1

    args = torch.randn(5, length), torch.randn(length), torch.randn(length)
    torch.testing.assert_close(nimble.compile(model, args)(*args), model(*args))
