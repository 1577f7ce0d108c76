"""New contents are computed in the memory of a state, and every state gets its own."""

import pytest
import torch
from lowered import agree
from torch import nn


class Keeps(nn.Module):
    def __init__(self, forward):
        super().__init__()
        for name in "abc":
            self.register_buffer(name, torch.randn(4, 3))
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def copies(graph):
    return sum(task.op == "aten.copy_.default" for task in graph.tasks)


def contents(x):
    return torch.tanh(x) * 2


def one(m, x):
    m.a.copy_(contents(x))
    return m.a.sum()


def its_own(m, x):
    m.a.mul_(0.9).add_(x)
    m.b.mul_(m.a + x)
    return m.a.sum() + m.b.sum()


def alike(m, x):
    v = contents(x)
    m.a.copy_(v)
    m.b.copy_(v)


def computed_twice(m, x):
    m.a.copy_(contents(x))
    m.b.copy_(contents(x))
    m.c = contents(x)


def alike_and_read(m, x):
    alike(m, x)
    m.c.add_(m.a * m.b)
    return (m.b * x).sum(), m.a.sum(0)


def made_of_each_other(m, x):
    v = m.a * m.b + x
    m.a.copy_(v)
    m.b.copy_(v)
    return v.sum()


def read_as_they_were(m, x):
    v = contents(x)
    before = (m.a * v).sum()
    m.a.copy_(v)
    m.b.copy_(v)
    return before, m.b.sum()


def an_input_too(m, x):
    v = contents(x)
    m.a.copy_(v)
    x.copy_(v)
    return v.sum()


def read_late(m, x):
    v = contents(x)
    before = (m.a * v).sum()
    m.a.copy_(v)
    return before


def crossed(m, x):
    a, b = torch.tanh(m.b) + x, torch.sigmoid(m.a) * x
    m.a.copy_(a)
    m.b.copy_(b)


def read_before(m, x):
    before = m.a * x
    m.a.copy_(before + 1.0)
    return before.sum()


COPIES = {
    one: 0, its_own: 0, alike: 1, computed_twice: 2, alike_and_read: 1, made_of_each_other: 1,
    read_as_they_were: 1, an_input_too: 1, read_late: 1, read_before: 0, crossed: 1,
}  # fmt: skip


@pytest.mark.parametrize("forward", COPIES)
def test_states_that_get_the_same(forward):
    torch.manual_seed(0)
    lowered, _ = agree(Keeps(forward), torch.randn(4, 3))
    assert copies(lowered) == COPIES[forward]
