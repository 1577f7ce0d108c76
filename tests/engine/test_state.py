"""State that a model updates: its buffers, and the tensors it is given."""

import copy

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import CaptureError


def test_batch_norm_statistics_advance_and_are_visible_in_the_module():
    torch.manual_seed(0)
    mine, theirs = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    engine = nimble.compile(mine, (torch.randn(8, 4),))
    assert mine.num_batches_tracked.item() == 0, "compiling must not train"
    for _ in range(3):
        x = torch.randn(8, 4)
        torch.testing.assert_close(engine(x), theirs(x))
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_averages_of_all_batches(dtype):
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None)).to(dtype)
    theirs = copy.deepcopy(mine)
    engine = nimble.compile(mine, (torch.randn(2, 3, 6, 6, dtype=dtype),))
    for number in range(5):
        if number == 3:
            for model in (mine, theirs):
                model[1].reset_running_stats()
        x = torch.randn(2, 3, 6, 6, dtype=dtype) + number
        torch.testing.assert_close(engine(x), theirs(x))
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())


def test_a_cache_written_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, 2))
            self.register_buffer("at", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.seen.index_copy_(0, self.at.view(1), x.view(1, 2))
            self.at.add_(1)
            return self.seen.sum(0)

    mine, theirs = Cache(), Cache()
    engine = nimble.compile(mine, (torch.ones(2),))
    for step in range(4):
        x = torch.full((2,), float(step))
        torch.testing.assert_close(engine(x), theirs(x))
    torch.testing.assert_close(mine.seen, theirs.seen)


def test_buffers_that_change_places():
    class Pong(nn.Module):
        def __init__(self):
            super().__init__()
            for name in "abc":
                self.register_buffer(name, torch.randn(2, 2))

        def forward(self, x):
            self.a, self.b, self.c = self.b, self.a, self.c.t()
            return self.a * x

    mine = Pong()
    theirs = copy.deepcopy(mine)
    engine = nimble.compile(mine, (torch.ones(2),))
    for _ in range(3):
        x = torch.randn(2)
        torch.testing.assert_close(engine(x), theirs(x))
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())


def test_conjugated_inputs_are_updated():
    def model(x):
        return x.mul_(1j), x + 1

    engine = nimble.compile(model, (torch.randn(3, dtype=torch.complex64),))
    for _ in range(2):
        mine = torch.randn(3, dtype=torch.complex64)
        theirs = mine.clone()
        shown = mine.conj()
        got, expected = engine(shown), model(theirs.conj())
        assert got[0] is shown
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(mine, theirs)


def test_a_negated_view_of_an_updated_input():
    def model(x):
        x.real.mul_(2)
        return x.conj().imag, x.conj()

    x = torch.randn(3, dtype=torch.complex64)
    theirs = x.clone()
    got, expected = nimble.compile(model, (x,))(x), model(theirs)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(x, theirs)


def test_a_buffer_replaced_by_assignment():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x):
            self.mean = 0.5 * self.mean + 0.5 * x
            return self.mean + 1

    mine, theirs = Mean(), Mean()
    engine = nimble.compile(mine, (torch.ones(2),))
    for _ in range(3):
        torch.testing.assert_close(engine(torch.ones(2)), theirs(torch.ones(2)))
    torch.testing.assert_close(mine.mean, theirs.mean)


def test_the_old_contents_of_a_replaced_buffer_may_be_returned():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x):
            old = self.last
            self.last = x + 0
            return old

    engine = nimble.compile(Last(), (torch.ones(2),))
    assert [engine(torch.full((2,), float(i)))[0].item() for i in (1, 2, 3)] == [0, 1, 2]


def test_python_state_is_refused_by_name():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = Counter()
    with pytest.raises(CaptureError, match=r"Counter\.calls"):
        nimble.compile(model, (torch.ones(2),))
    assert model.calls == 0


def test_caches_in_lists_and_dicts_are_refused_and_left_as_they_were():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = {}

        def forward(self, x):
            if len(x) not in self.tables:
                self.tables[len(x)] = torch.arange(len(x)) * 1.0
            return x + self.tables[len(x)]

    model, x = Table(), torch.ones(3)
    with pytest.raises(CaptureError, match=r"Table\.tables"):
        nimble.compile(model, (x,))
    assert model.tables == {}
    assert model(x).tolist() == [1, 2, 3]
    assert nimble.compile(model, (x,))(x).tolist() == [1, 2, 3]


def test_state_in_a_tuple_is_refused_by_name_and_left_as_it_was():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(3, 4)
            self.state = None

        def forward(self, x):
            y, state = self.layer(x, self.state)
            self.state = tuple(part.detach() for part in state)
            return y

    model, x = Hidden(), torch.randn(5, 1, 3)
    with pytest.raises(CaptureError, match=r"Hidden\.state in forward"):
        nimble.compile(model, (x,))
    assert model.state is None
    assert model(x).shape == model(x).shape == (5, 1, 4)


def test_a_recurrent_layer_still_runs_eagerly_afterwards():
    model, x = nn.LSTM(3, 4, num_layers=2), torch.randn(5, 1, 3)
    with torch.no_grad():
        expected = model(x)
        engine = nimble.compile(model, (x,))
        torch.testing.assert_close(engine(x), expected)
        torch.testing.assert_close(model(x), expected)
        model.weight_hh_l0.mul_(2)
        torch.testing.assert_close(engine(x), model(x))


def test_mutated_inputs_are_written_back():
    def model(x, y):
        x.add_(y)
        y[0] = 7
        return x * 2

    for strided in (lambda t: t, lambda t: t.t()):
        mine = [strided(torch.arange(4.0).view(2, 2)), torch.ones(2, 2)]
        theirs = [t.clone() for t in mine]
        engine = nimble.compile(model, tuple(t.clone() for t in mine))
        torch.testing.assert_close(engine(*mine), model(*theirs))
        torch.testing.assert_close(mine, theirs)


def test_parameters_shared_between_modules():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    x = torch.randn(2, 3)
    engine = nimble.compile(model, (x,))
    with torch.no_grad():
        model[2].weight.add_(1)
        torch.testing.assert_close(engine(x), model(x))
