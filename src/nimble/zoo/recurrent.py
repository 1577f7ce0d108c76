"""Recurrent cells, unrolled over time."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class UnrolledLSTM(nn.Module):
    """A sequence of vectors (batch, time, width) to the cell's output after each of them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = memory = x.new_zeros(x.shape[0], self.cell.hidden_size)
        outputs = []
        for step in x.unbind(1):
            hidden, memory = self.cell(step, (hidden, memory))
            outputs.append(hidden)
        return torch.stack(outputs, 1)


class UnrolledGRU(nn.Module):
    """A sequence of vectors (batch, time, width) to the cell's output after each of them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[0], self.cell.hidden_size)
        outputs = []
        for step in x.unbind(1):
            hidden = self.cell(step, hidden)
            outputs.append(hidden)
        return torch.stack(outputs, 1)
