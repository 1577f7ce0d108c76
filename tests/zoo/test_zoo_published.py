"""The zoo's networks have the parameters, the arithmetic and the graphs that are published."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from nimble.zoo.published import PUBLISHED
from nimble.zoo.recipes import count, on_meta

GRAPHS = {
    # Operators, edges of the minimum equivalent graph, chains of a maximum matching.
    "resnet50": (174, 177, 5),
    "resnet101": (344, 347, 5),
    "inception_v3": (312, 346, 36),
    "googlenet": (195, 221, 28),
    "mobilenet_v2": (151, 150, 1),
    "nasnet_a_mobile": (982, 1109, 117),
    "amoebanet": (701, 789, 78),
    "darts": (711, 785, 60),
}


SLOW = {"resnet101", "inception_v3", "amoebanet", "darts"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_arithmetic_are_within_one_percent(name: str) -> None:
    published = PUBLISHED[name]
    parameters, multiplies = count(name)
    if published.parameters is not None:
        assert parameters / 1e6 == pytest.approx(published.parameters, rel=published.within)
    if published.multiplies is not None:
        assert multiplies / 1e9 == pytest.approx(published.multiplies, rel=published.within)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] if n in SLOW else []) for n in GRAPHS]
)
def test_graph_is_the_published_one(name: str) -> None:
    reachable = _reduced(_trace(*on_meta(name)))
    assert (len(reachable), int(sum(map(len, reachable))), _chains(reachable)) == GRAPHS[name]


def _trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> GraphModule:
    state = dict(model.named_parameters()) | dict(model.named_buffers())

    def run(state: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        with torch.no_grad():
            result: Tensor = torch.func.functional_call(model, state, inputs)
        return result

    traced = make_fx(run, tracing_mode="fake", _allow_non_fake_inputs=True)(state, inputs)
    traced.graph.eliminate_dead_code()
    return traced


def _is_op(node: Node) -> bool:
    """Whether it counts in published figures: a crop along both axes of an image counts once."""
    if node.op != "call_function" or "getitem" in str(node.target):
        return False
    if node.target is torch.ops.aten.slice.Tensor:
        return node.args[1] == 2
    return node.target not in (torch.ops.aten.t.default, torch.ops.aten.view.default)


def _reduced(traced: GraphModule) -> list[set[int]]:
    """For every operator, those it depends on through no other."""
    sources: dict[Node, set[int]] = {}
    direct: list[set[int]] = []
    ancestors: list[set[int]] = []
    for node in traced.graph.nodes:
        found = set().union(*(sources[n] for n in node.all_input_nodes))
        if _is_op(node):
            implied = set().union(*(ancestors[i] for i in found))
            direct.append(found - implied)
            ancestors.append(found | implied)
            found = {len(direct) - 1}
        sources[node] = found
    return direct


def _chains(direct: list[set[int]]) -> int:
    rows = [i for i, found in enumerate(direct) for _ in found]
    columns = [j for found in direct for j in found]
    edges = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(direct), len(direct)))
    return int((maximum_bipartite_matching(edges) < 0).sum())
