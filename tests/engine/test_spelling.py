"""However a call spells its arguments, by position or by keyword, it finds the same plan."""

import functools

import pytest
import torch
from torch import nn

import nimble
from nimble.errors import CaptureError, InputError


class Masked(nn.Module):
    def forward(self, x, mask=None, *, scale=1.0, shift=0.0):
        return (x if mask is None else x * mask) * scale + shift


X, MASK = torch.arange(4.0), torch.tensor([0.0, 1, 0, 1])
ONE_CALL = (
    ((X, MASK), {}),
    ((X,), {"mask": MASK}),
    ((), {"x": X, "mask": MASK}),
    ((), {"mask": MASK, "x": X}),
)


class Callable:
    def __call__(self, x, mask):
        return x * mask


@pytest.mark.parametrize(
    "model",
    [Masked(), Masked().forward, Callable(), lambda x, mask: x * mask],
    ids=["module", "method", "object", "function"],
)
@pytest.mark.parametrize("first", ONE_CALL)
def test_every_spelling_is_one_plan(model, first, tmp_path):
    engine = nimble.compile(model, *first, strict_shapes=True)
    engine.save(tmp_path / "model.nimble")
    for made in (engine, nimble.load(tmp_path / "model.nimble")):
        for args, kwargs in ONE_CALL:
            assert made(*args, **kwargs).tolist() == [0, 1, 0, 3]
        assert len(made.plans) == 1


def test_keywords_only_come_in_any_order_and_behind_a_gap():
    model = Masked()
    engine = nimble.compile(model, (X,), {"scale": 2.0, "shift": 1.0})
    assert engine(shift=1.0, scale=2.0, x=X).tolist() == model(X, scale=2.0, shift=1.0).tolist()
    assert len(engine.plans) == 1

    def gap(x, a=1.0, b=2.0):
        return x * a + b

    engine = nimble.compile(gap, (X,), {"b": 3.0})
    assert torch.equal(engine(b=3.0, x=X), gap(X, b=3.0))
    assert len(engine.plans) == 1


def test_a_name_by_position_only_is_free_for_keywords():
    def model(x, /, y, **others):
        return x - y + sum(others.values())

    engine = nimble.compile(model, (X, MASK), {"x": X})
    assert torch.equal(engine(X, x=X, y=MASK), model(X, MASK, x=X))
    assert len(engine.plans) == 1


def test_what_can_tell_the_spellings_apart_is_called_as_it_was_spelled():
    def how(*args, **kwargs):
        return sum(args) + 10 * sum(kwargs.values())

    @functools.wraps(Callable.__call__)
    def decorated(*args, **kwargs):
        return how(*args[1:], **kwargs)

    hooked = Masked()
    hooked.register_forward_pre_hook(lambda module, args: (args[0] + len(args), *args[1:]))
    for model in (how, functools.partial(decorated, None), hooked):
        engine = nimble.compile(model, (X, MASK))
        assert torch.equal(engine(X, MASK), model(X, MASK))
        assert torch.equal(engine(X, mask=MASK), model(X, mask=MASK))


def test_a_hook_added_later_sees_the_spelling_of_the_call():
    model = Masked()
    engine = nimble.compile(model, (X, MASK))
    model.register_forward_pre_hook(lambda module, args: (args[0] + len(args), *args[1:]))
    assert torch.equal(engine(X, mask=MASK), model(X, mask=MASK))
    assert torch.equal(engine(X, MASK), model(X, MASK))


def test_errors_call_arguments_what_the_model_does(tmp_path):
    engine = nimble.compile(Masked(), (X, MASK), strict_shapes=True)
    engine.save(tmp_path / "model.nimble")
    for made in (engine, nimble.load(tmp_path / "model.nimble")):
        for args, kwargs in (((X, MASK.double()), {}), ((X,), {"mask": MASK.double()})):
            with pytest.raises(InputError, match=r"mask is float64\[4\] instead of float32\[4\]"):
                made(*args, **kwargs)


def test_an_argument_given_twice_or_unknown_is_the_models_own_error():
    engine = nimble.compile(Masked(), (X, MASK))
    with pytest.raises(CaptureError, match="multiple values for argument 'x'"):
        engine(X, x=X)
    with pytest.raises(CaptureError, match="unexpected keyword argument 'masc'"):
        engine(X, masc=MASK)


def test_inputs_of_one_name_are_told_apart():
    def model(args, *rest, **others):
        return args[0] + 2 * args[1], rest[0].mul_(3), others["rest"] + 1

    engine = nimble.compile(model, ([X, MASK], X.clone()), {"rest": X + 1})
    got, expected = (run([X, MASK], X.clone(), rest=X + 1) for run in (engine, model))
    torch.testing.assert_close(got, expected)
    assert len(set(engine.plans[0].names)) == 4
