"""Plans by signature: the ladder, first use, strictness, eviction, padding."""

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import CaptureError, InputError


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()


def test_a_ladder_is_compiled_ahead():
    m = model()
    engine = nimble.compile(m, (torch.randn(1, 4),), shapes=[1, 2, 8], strict_shapes=True)
    assert len(engine.plans) == 3
    for rows in (1, 2, 8):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(engine(x), m(x).detach())


def test_batch_and_sequence_multiply_out():
    engine = nimble.compile(
        lambda x: x.softmax(1), (torch.randn(1, 4),), shapes={"batch": [1, 2], "sequence": [4, 6]}
    )
    assert sorted(p.signature.tensors[0][1] for p in engine.plans) == [
        (1, 4),
        (1, 6),
        (2, 4),
        (2, 6),
    ]


def test_an_unseen_signature_is_compiled_on_first_use_and_explained():
    m = model()
    engine = nimble.compile(m, (torch.randn(2, 4),))
    x = torch.randn(5, 4)
    torch.testing.assert_close(engine(x), m(x).detach())
    assert len(engine.plans) == 2
    assert "input is float32[5,4] instead of float32[2,4]" in engine.explain()


def test_strict_shapes_refuses_and_names_the_tensor():
    engine = nimble.compile(model(), (torch.randn(2, 4),), strict_shapes=True)
    with pytest.raises(InputError, match=r"input is float32\[3,4\] instead of float32\[2,4\]"):
        engine(torch.randn(3, 4))
    engine(torch.randn(2, 4))


def test_the_least_recently_used_plan_is_dropped():
    engine = nimble.compile(lambda x: x + 1, (torch.ones(1),), max_plans=2)
    engine(torch.ones(2))
    engine(torch.ones(1))
    engine(torch.ones(3))
    assert sorted(p.signature.tensors[0][1] for p in engine.plans) == [(1,), (3,)]
    assert engine(torch.ones(2)).tolist() == [2, 2]


def test_folded_weights_are_shared_between_plans():
    engine = nimble.compile(model(), (torch.randn(1, 4),), shapes=[1, 2, 4])
    folded = [{t.data_ptr() for t in p.constants.values()} for p in engine.plans]
    assert folded[0]
    assert folded[0] == folded[1] == folded[2]


def test_padding_runs_a_smaller_batch_on_the_next_rung():
    m = model()
    engine = nimble.compile(
        m, (torch.randn(1, 4),), shapes=[1, 4, 8], pad="batch", strict_shapes=True
    )
    for rows in range(1, 9):
        x = torch.randn(rows, 4)
        got, expected = engine(x), m(x).detach()
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)
    assert len(engine.plans) == 3
    with pytest.raises(InputError, match="strict_shapes"):
        engine(torch.randn(9, 4))


def test_padding_is_refused_where_rows_influence_each_other():
    with pytest.raises(InputError, match=r"pad='batch'.*(mean|sum)"):
        nimble.compile(lambda x: x - x.mean(0), (torch.randn(4, 3),), shapes=[4], pad="batch")
    trained = model().train()
    with pytest.raises(InputError, match="pad='batch'"):
        nimble.compile(trained, (torch.randn(4, 4),), shapes=[4], pad="batch")


def test_train_and_eval_mode_have_plans_of_their_own():
    m = model()
    x = torch.randn(6, 4)
    engine = nimble.compile(m, (x,))
    m.train()
    assert engine(x).shape == (6, 2)
    assert m[1].num_batches_tracked.item() == 1
    m.eval()
    torch.testing.assert_close(engine(x), m(x).detach())
    assert len(engine.plans) == 2


def test_bad_ladders():
    for shapes, text in (([0], "positive"), ({"depth": [1]}, "depth"), ([], "positive")):
        with pytest.raises(InputError, match=text):
            nimble.compile(lambda x: x + 1, (torch.ones(1),), shapes=shapes)


def test_padding_is_refused_where_the_number_of_rows_is_computed_with():
    with pytest.raises(InputError, match="number of rows"):
        nimble.compile(lambda x: x / x.shape[0], (torch.randn(4, 3),), shapes=[4], pad="batch")


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x[:, : x.shape[0]].sum(1),
        lambda x: x[:, x.shape[0] - 1 : x.shape[0] + 1] * 2,
        lambda x: torch.roll(x, (x.shape[0],), (1,)) * 2,
        lambda x: (x * 2, x.shape[0]),
    ],
)
def test_padding_is_refused_where_the_number_of_rows_chooses_a_part(model):
    with pytest.raises(InputError, match="pad='batch'"):
        nimble.compile(model, (torch.randn(4, 8),), shapes=[4], pad="batch")


def rows_of(*counts):
    return tuple(torch.randn(n, 3) for n in counts)


@pytest.mark.parametrize(
    ("model", "example", "call"),
    [
        (lambda x, y: x + y, (4, 4), (1, 4)),
        (lambda x, y: (x * 2, y * 2), (4, 4), (3, 4)),
        (lambda x: x * 2 if x.shape[0] > 3 else x, (4,), (3,)),
        (lambda x: x * 2 if x.shape[0] % 3 else x + 1, (4,), (3,)),
        (lambda x, y: x - y if x.shape[0] > 3 else y - x, (4, 4), (3, 3)),
        (lambda x: (x * 2, x.shape[0] == 3), (4,), (3,)),
        (lambda x: (x, x * 2), (4,), (3,)),
        (lambda x: x.squeeze(), (4,), (1,)),
        (lambda x: (x * 2).squeeze(), (4,), (1,)),
    ],
)
def test_a_call_is_padded_only_if_the_model_does_the_same_with_fewer_rows(model, example, call):
    engine = nimble.compile(model, rows_of(*example), shapes=[4], pad="batch")
    args = rows_of(*call)
    for _ in range(2):
        got, expected = engine(*args), model(*args)
        torch.testing.assert_close(got, expected, check_stride=True)
        if isinstance(expected, tuple):
            assert (got[0] is args[0]) == (expected[0] is args[0])
    assert len(engine.plans) == 2
    strict = nimble.compile(model, rows_of(*example), shapes=[4], pad="batch", strict_shapes=True)
    with pytest.raises(InputError, match="no plan for this call"):
        strict(*args)


def test_an_argument_that_is_no_batch_is_not_padded():
    def model(x, w):
        return x @ w

    engine = nimble.compile(model, (torch.randn(4, 3), torch.randn(3, 3)), shapes=[4], pad="batch")
    for rows in (2, 3):
        x, w = torch.randn(rows, 3), torch.randn(3, 3)
        torch.testing.assert_close(engine(x, w), x @ w)
    assert len(engine.plans) == 2, "three rows might be those of w"


def test_what_eager_refuses_is_not_padded():
    engine = nimble.compile(
        lambda x, y: torch.cat([x, y], 1), rows_of(4, 4), shapes=[4], pad="batch"
    )
    with pytest.raises(CaptureError, match="Sizes of tensors must match"):
        engine(*rows_of(3, 4))


def test_padding_is_refused_where_a_result_is_the_same_for_any_number_of_rows():
    with pytest.raises(InputError, match="has not a row for each row"):
        nimble.compile(lambda x: (x * 2, torch.zeros(4, 3)), rows_of(4), shapes=[4], pad="batch")


def test_a_loaded_engine_pads_what_was_proven_when_it_was_saved(tmp_path):
    def model(x):
        return x + 1 if x.shape[0] == 2 else x * 2

    nimble.compile(model, rows_of(4), shapes=[4, 6], pad="batch").save(tmp_path / "m.nimble")
    loaded = nimble.load(tmp_path / "m.nimble")
    for rows in (0, 1, 3, 4, 5, 6):
        (x,) = rows_of(rows)
        torch.testing.assert_close(loaded(x), model(x))
    with pytest.raises(InputError, match="no proof for 2 rows"):
        loaded(*rows_of(2))


def test_nothing_is_padded_to_a_plan_made_on_first_use():
    engine = nimble.compile(lambda x: x - x.mean(0), (torch.randn(1, 4),), pad="batch")
    engine(torch.randn(4, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(engine(x), x - x.mean(0))


def test_arguments_that_may_change_unnoticed_are_refused():
    class Config:
        scale = 2.0

    with pytest.raises(InputError, match="Config"):
        nimble.compile(lambda x, c: x * c.scale, (torch.ones(2), Config()))


def test_keyword_arguments_in_any_order():
    engine = nimble.compile(lambda *, a, b: a - b, (), {"a": torch.ones(2), "b": torch.zeros(2)})
    assert engine(b=torch.zeros(2), a=torch.ones(2)).tolist() == [1, 1]
