"""Train a small language model on sums written out, in eager and with one plan a step.

The text is lines such as 23+58=81, backwards after the sign so that digits carry as they are read:
generated, and yet something to be learned.

python examples/train_text.py [picture.svg]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from race import Batches, race, report
from torch import nn, optim

LETTERS = "0123456789+=;"
LENGTH, WIDTH, HEADS, LAYERS, BATCH, STEPS = 64, 96, 4, 3, 16, 400


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inside, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.inside(self.first(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.wide(self.second(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = (nn.Embedding(n, WIDTH) for n in (len(LETTERS), LENGTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text) + self.places(torch.arange(text.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def sums(length: int) -> torch.Tensor:
    text = ""
    while len(text) < length:
        a, b = torch.randint(0, 100, (2,)).tolist()
        text += f"{a}+{b}={str(a + b)[::-1]};"
    return torch.tensor([LETTERS.index(letter) for letter in text[:length]])


def batches() -> Batches:
    text = torch.stack([sums(LENGTH + 1) for _ in range(BATCH * STEPS)]).split(BATCH)
    return [(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in text]


def loss_fn(found: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(found.flatten(0, 1), letters.flatten())


def main(picture: Path) -> None:
    torch.manual_seed(0)
    runs = race(
        Model(),
        loss_fn,
        lambda parameters: optim.AdamW(parameters, 2e-3, weight_decay=0.01),
        lambda optimizer: optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS),
        batches(),
        clip_norm=1.0,
    )
    report("A language model that adds, AdamW", runs, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "text.svg"))
