"""The vision transformer (Dosovitskiy et al., 2021) in its tiny size, patches of 16×16."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nimble.zoo.blocks import Residual

EPS = 1e-6


class VisionTransformer(nn.Module):
    def __init__(
        self, resolution: int, layers: int = 12, hidden: int = 192, heads: int = 3
    ) -> None:
        super().__init__()
        patches = (resolution // 16) ** 2
        self.first = nn.Parameter(torch.randn(1, 1, hidden) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, patches + 1, hidden) * 0.02)
        self.embed = nn.Conv2d(3, hidden, 16, 16)
        self.layers = nn.Sequential(*[_layer(hidden, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(hidden, eps=EPS)
        self.head = nn.Linear(hidden, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        logits: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return logits


def _layer(hidden: int, heads: int) -> nn.Sequential:
    feed = [nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)]
    return nn.Sequential(
        Residual(nn.Sequential(nn.LayerNorm(hidden, eps=EPS), Attention(hidden, heads))),
        Residual(nn.Sequential(nn.LayerNorm(hidden, eps=EPS), *feed)),
    )


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(*parts.unbind(0))
        mixed: Tensor = self.out(x.transpose(1, 2).flatten(2))
        return mixed
