"""A graph neural network that averages over neighbours (GraphSAGE; Hamilton et al., 2017)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GraphNetwork(nn.Module):
    """Features of nodes, and edges as rows of sources and of targets, to logits of nodes."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 128, 16)) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.others = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges.unbind(0)
        degree = x.new_zeros(len(x)).index_add(0, target, x.new_ones(len(target)))
        share = 1 / degree.clamp(min=1)[:, None]
        for i, (own, others) in enumerate(zip(self.own, self.others, strict=True)):
            total = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
            x = own(x) + others(total * share)
            if i < len(self.own) - 1:
                x = F.relu(x)
        return x
