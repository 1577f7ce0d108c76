"""One decoding step of GPT-2 (Radford et al., 2019), its keys and values kept in buffers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 50257


class GPT2Step(nn.Module):
    """A token of every sequence and its position to the logits of the next token.

    Every call writes the token's keys and values into the cache at that position. The cache starts
    full of random numbers, so that an answer that ignores it is a wrong one.
    """

    def __init__(
        self, length: int, batch: int = 1, layers: int = 12, hidden: int = 768, heads: int = 12
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Embedding(1024, hidden)
        self.layers = nn.ModuleList(
            DecoderLayer(length, batch, hidden, heads) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.words(token) + self.positions(position)
        for layer in self.layers:
            x = layer(x, position)
        return F.linear(self.norm(x), self.words.weight)


class DecoderLayer(nn.Module):
    def __init__(self, length: int, batch: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = CachedAttention(length, batch, hidden, heads)
        self.feed_norm = nn.LayerNorm(hidden)
        self.feed = nn.Sequential(
            nn.Linear(hidden, 4 * hidden),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * hidden, hidden),
        )

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position)
        fed: Tensor = x + self.feed(self.feed_norm(x))
        return fed


class CachedAttention(nn.Module):
    keys: Tensor
    values: Tensor

    def __init__(self, length: int, batch: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        cache = (batch, heads, length, hidden // heads)
        self.register_buffer("keys", torch.randn(cache), persistent=False)
        self.register_buffer("values", torch.randn(cache), persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        seen = torch.arange(self.keys.shape[2], device=x.device) <= position
        x = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=seen[None])
        mixed: Tensor = self.out(x.transpose(1, 2).flatten(2))
        return mixed
