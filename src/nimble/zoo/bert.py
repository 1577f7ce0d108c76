"""BERT (Devlin et al., 2019): an encoder that normalises after every residual sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 30522
EPS = 1e-12


class Bert(nn.Module):
    """Token ids to the hidden state of every token, and the pooled state of the first."""

    def __init__(self, layers: int = 12, hidden: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=EPS)
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        types = self.types(torch.zeros_like(ids))
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(self.words(ids) + types + positions)
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class EncoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads)
        self.attention_norm = nn.LayerNorm(hidden, eps=EPS)
        self.feed = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        )
        self.feed_norm = nn.LayerNorm(hidden, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x))
        fed: Tensor = self.feed_norm(x + self.feed(x))
        return fed


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        x = F.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.out(x.transpose(1, 2).flatten(2))
        return mixed
