"""Buffers that stay: `bind` once, `run` often."""

import threading

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import InputError


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def test_run_reads_the_inputs_and_writes_the_results_again():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    y = engine.bind(x)
    for _ in range(3):
        x.normal_()
        assert engine.run() is y
        torch.testing.assert_close(y, model(x).detach())


def test_results_are_nested_as_the_model_nests_them():
    engine = nimble.compile(lambda x: {"sum": x.sum(), "all": (x + 1, x)}, (torch.ones(3),))
    x = torch.arange(3.0)
    bound = engine.bind(x)
    assert engine.run() is bound
    assert bound["sum"] == 3
    assert bound["all"][0].tolist() == [1, 2, 3]
    assert bound["all"][1] is x


def test_a_run_counts_as_an_edit_of_its_results():
    x = torch.ones(3)
    engine = nimble.compile(lambda x: x * 2, (x,))
    y = engine.bind(x)
    before = y._version
    engine.run()
    assert y._version > before


def test_calls_in_between_disturb_nothing():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    y = engine.bind(x)
    engine.run()
    kept = y.clone()
    other = engine(torch.randn(2, 4))
    assert torch.equal(y, kept)
    kept = other.clone()
    engine.run()
    assert torch.equal(other, kept)


def test_callers_on_other_threads_get_their_own_answers():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    y, expected = engine.bind(x), model(x).detach()
    other = torch.randn(2, 4)
    right, wrong = model(other).detach(), []

    def call():
        for _ in range(200):
            if not torch.allclose(engine(other), right, atol=1e-5):
                wrong.append("a call")

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        engine.run()
        if not torch.allclose(y, expected, atol=1e-5):
            wrong.append("a run")
    for thread in threads:
        thread.join()
    assert wrong == []


def test_edited_weights_take_effect():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    y = engine.bind(x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    engine.run()
    torch.testing.assert_close(y, model(x).detach())
    model[2].weight = nn.Parameter(torch.randn(3, 8))
    engine.run()
    torch.testing.assert_close(y, model(x).detach())


def test_a_model_that_has_changed_asks_to_be_bound_again():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    engine.bind(x)
    model.train()
    with pytest.raises(InputError, match="bind again"):
        engine.run()
    model.eval()
    engine.run()
    model[0] = nn.Linear(4, 5)
    with pytest.raises(InputError, match="bind again"):
        engine.run()
    y = engine.bind(x)
    engine.run()
    torch.testing.assert_close(y, model(x).detach())
    model[0].weight = nn.Parameter(torch.randn(3, 4))
    with pytest.raises(InputError, match="gone, since the model's tensors have other types"):
        engine.run()


def test_a_replaced_parameter_among_the_results_asks_to_be_bound_again():
    model, x = nn.Linear(2, 2), torch.randn(2)
    engine = nimble.compile(lambda x: (model(x), model.weight), (x,))
    engine.bind(x)
    engine.run()
    model.weight = nn.Parameter(torch.randn(2, 2))
    with pytest.raises(InputError, match="bind again"):
        engine.run()


def test_a_dropped_plan_asks_to_be_bound_again():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,), max_plans=1)
    engine.bind(x)
    engine(torch.randn(3, 4))
    with pytest.raises(InputError, match=r"gone, since it made room .*max_plans=1\): bind again"):
        engine.run()


def test_an_input_that_moved_is_found_and_one_that_shrank_is_named():
    model, x = small(), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    y = engine.bind(x)
    x.set_(torch.randn(2, 4))
    engine.run()
    torch.testing.assert_close(y, model(x).detach())
    x.resize_(1, 4)
    with pytest.raises(InputError, match=r"input: has shape .*expected \[2, 4\]"):
        engine.run()


@pytest.mark.parametrize(
    "move",
    [
        lambda y: y.untyped_storage().resize_(4),
        lambda y: setattr(y, "data", torch.zeros(8, 4)),
        lambda y: y.set_(torch.zeros(8, 4)),
        lambda y: y.resize_(2, 4),
        lambda y: y.t_(),
    ],
)
def test_a_result_that_was_moved_is_not_written(move):
    x = torch.ones(8, 4)
    engine = nimble.compile(lambda x: x + 1, (x,))
    y = engine.bind(x)
    engine.run()
    move(y)
    with pytest.raises(InputError, match=r"a result: was given other memory .*; bind again"):
        engine.run()
    y = engine.bind(x)
    assert engine.run() is y


@pytest.mark.parametrize("feed", [lambda x, y: x.set_(y), lambda x, y: setattr(x, "data", y)])
def test_a_result_cannot_become_the_input(feed):
    model, x = nn.Linear(64, 64).eval(), torch.randn(8, 64)
    engine = nimble.compile(model, (x,))
    y = engine.bind(x)
    engine.run()
    feed(x, y)
    with pytest.raises(InputError, match="input: shares memory with a result of bind"):
        engine.run()


def test_a_result_cannot_become_a_weight():
    model, x = nn.Linear(4, 4, bias=False).eval(), torch.randn(4, 4)
    engine = nimble.compile(lambda x: x + model.weight, (x,))
    y = engine.bind(x)
    engine.run()
    model.weight.data = y
    for _ in range(2):
        with pytest.raises(InputError, match="a result: is now the memory of a parameter"):
            engine.run()


def test_state_and_mutated_inputs_are_updated_by_every_run():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            x.mul_(2)
            return self.calls + x

    model, x = Counting(), torch.ones(2)
    engine = nimble.compile(model, (x.clone(),))
    y = engine.bind(x)
    assert model.calls.tolist() == [0, 0]
    engine.run()
    engine.run()
    assert model.calls.tolist() == [2, 2]
    assert x.tolist() == [4, 4]
    assert y.tolist() == [6, 6]


def test_what_cannot_be_bound_says_why():
    engine = nimble.compile(lambda x: x + 1, (torch.ones(3),), strict_shapes=True)
    with pytest.raises(InputError, match="nothing is bound"):
        engine.run()
    with pytest.raises(InputError, match="no plan for this call"):
        engine.bind(torch.ones(4))
    padding = nimble.compile(
        small(), (torch.randn(4, 4),), shapes={"batch": [4]}, pad="batch", strict_shapes=True
    )
    with pytest.raises(InputError, match="does not pad: pass 4 rows"):
        padding.bind(torch.randn(3, 4))


def test_a_loaded_engine_can_be_bound(tmp_path):
    model, x = small(), torch.randn(2, 4)
    nimble.compile(model, (x,)).save(tmp_path / "small.nimble")
    engine = nimble.load(tmp_path / "small.nimble")
    y = engine.bind(x)
    engine.run()
    torch.testing.assert_close(y, model(x).detach())
