"""Random numbers are eager's, in eager's order, from the same seed."""

import torch
from torch import nn

import nimble


def model(x):
    noisy = nn.functional.dropout(x, 0.5, training=True) + torch.rand(x.shape)
    return noisy * 2, torch.randn(3), torch.randint(0, 9, (4,))


def test_differs_between_calls_and_repeats_from_a_seed():
    x = torch.ones(100)
    engine = nimble.compile(model, (x,))
    torch.manual_seed(1)
    first, second = engine(x), engine(x)
    assert not torch.equal(first[0], second[0])
    torch.manual_seed(1)
    torch.testing.assert_close(engine(x), first, rtol=0, atol=0)


def test_is_eagers_and_independent_of_the_number_of_workers():
    x = torch.ones(100)
    torch.manual_seed(2)
    expected = model(x)
    for workers in (1, 2, 3):
        engine = nimble.compile(model, (x,), workers=workers)
        torch.manual_seed(2)
        torch.testing.assert_close(engine(x), expected)


def test_compiling_draws_nothing():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    nimble.compile(model, (torch.ones(5),))
    assert torch.equal(torch.rand(1), expected)


def test_dropout_in_train_mode():
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    x = torch.ones(1, 4)
    engine = nimble.compile(model, (x,))
    assert not torch.equal(engine(x), engine(x))
    model.eval()
    torch.testing.assert_close(engine(x), model(x).detach())
