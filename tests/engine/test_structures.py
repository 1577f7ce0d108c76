"""Arguments and results nest as they like; what is no tensor belongs to the signature."""

import dataclasses
from collections import OrderedDict, namedtuple

import foreign
import pytest
import torch
from torch import nn

import nimble
from nimble.errors import CaptureError

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Boxes:
    corners: torch.Tensor
    scores: torch.Tensor
    label: str = "cat"


def test_nested_containers_go_in_and_come_out():
    def model(pair, *, extra, scale=2):
        boxes = Boxes(pair.left + extra["a"][0], pair.right * scale)
        return {"boxes": boxes, "rest": [pair, (extra["a"][1], None, 3)]}

    pair = Pair(torch.randn(3), torch.randn(3))
    extra = OrderedDict(a=(torch.randn(3), torch.randn(3)))
    engine = nimble.compile(model, (pair,), {"extra": extra})
    got, expected = engine(pair, extra=extra), model(pair, extra=extra)
    assert type(got["boxes"]) is Boxes
    assert got["boxes"].label == "cat"
    torch.testing.assert_close(got["boxes"].corners, expected["boxes"].corners)
    torch.testing.assert_close(got["boxes"].scores, expected["boxes"].scores)
    assert type(got["rest"][0]) is Pair
    assert got["rest"][1][1:] == (None, 3)


@pytest.fixture
def transformers():
    if not foreign.installed("transformers"):
        pytest.skip("transformers is not installed")
    foreign.load("torchvision")
    return foreign.load("transformers")


def test_hugging_face_outputs_keep_their_class(transformers):
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        vocab_size=50,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    ids = torch.randint(0, 50, (1, 7))
    with torch.no_grad():
        expected = model(ids)
    got = nimble.compile(model, (ids,))(ids)
    assert type(got) is type(expected)
    torch.testing.assert_close(got.last_hidden_state, expected.last_hidden_state)


def test_a_hugging_face_cache_comes_out_new_at_every_call(transformers):
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    engine = nimble.compile(model, (torch.randint(0, 50, (1, 5)),))
    ids, following = torch.randint(0, 50, (1, 5)), torch.randint(0, 50, (1, 1))
    first = engine(ids).past_key_values
    with torch.no_grad():
        for _ in range(2):
            got, expected = engine(ids).past_key_values, model(ids).past_key_values
            assert type(got) is type(expected)
            assert got is not first
            torch.testing.assert_close(
                model(following, past_key_values=got).logits,
                model(following, past_key_values=expected).logits,
            )


def test_objects_of_any_ordinary_class_come_out_new_at_every_call():
    class Plain:
        def __init__(self, x):
            self.x, self.also, self.name = x * 2, [x + 1], "plain"

    class Answers(dict):
        pass

    def model(x):
        answers = Answers(sum=x.sum())
        answers.plain = Plain(x)
        return answers, {x * 3}, {1, 2}, torch.distributions.Normal(x, x.exp(), False)

    engine = nimble.compile(model, (torch.zeros(2),))
    answers, tripled, numbers, normal = engine(torch.ones(2))
    assert type(answers) is Answers
    assert answers["sum"].item() == 2
    assert type(answers.plain) is Plain
    assert (answers.plain.x.tolist(), answers.plain.name) == ([2, 2], "plain")
    assert answers.plain.also[0].tolist() == [2, 2]
    assert tripled.pop().tolist() == [3, 3]
    assert normal.mean.tolist() == [1, 1]
    numbers.add(3)
    assert engine(torch.zeros(2))[2] == {1, 2}
    assert answers.plain.x.tolist() == [2, 2]


def test_an_object_that_cannot_be_rebuilt_is_refused_by_its_place():
    class Sealed:
        def __init__(self, x):
            self.x = x

        def __reduce_ex__(self, protocol):
            return Sealed, (self.x,)

    with pytest.raises(CaptureError, match=r"the result\['a'\]\[1\] is a Sealed"):
        nimble.compile(lambda x: {"a": (x, Sealed(x * 2))}, (torch.ones(2),))

    def circle(x):
        inside = [x]
        inside.append(inside)
        return Pair(x, inside)

    with pytest.raises(CaptureError, match=r"the result\.right\[1\] is a list"):
        nimble.compile(circle, (torch.ones(2),))


def test_attributes_of_a_dataclass_that_are_no_fields_come_out():
    def model(x):
        boxes = Boxes(x, x)
        boxes.area = x * 2
        return boxes

    assert nimble.compile(model, (torch.ones(2),))(torch.ones(2)).area.tolist() == [2, 2]


def test_keyword_arguments_arrive_in_the_order_of_the_call():
    def model(**named):
        return {name: x + 1 for name, x in named.items()}, torch.cat(list(named.values()))

    a, b = torch.zeros(1), torch.ones(1)
    engine = nimble.compile(model, (), {"b": b, "a": a})
    for named in ({"b": b, "a": a}, {"a": a, "b": b}):
        got, expected = engine(**named), model(**named)
        assert list(got[0]) == list(expected[0])
        assert got[1].tolist() == expected[1].tolist()


def test_zeros_of_either_sign_are_different_arguments():
    engine = nimble.compile(lambda x, y: x / y, (torch.ones(1), 0.0))
    assert engine(torch.ones(1), -0.0).item() == -float("inf")
    assert engine(torch.ones(1), 0.0).item() == float("inf")
    engine(torch.ones(1), float("nan"))
    engine(torch.ones(1), float("nan"))
    assert len(engine.plans) == 3


def test_non_tensor_arguments_belong_to_the_signature():
    def model(x, power):
        return x**power

    x = torch.rand(4)
    engine = nimble.compile(model, (x, 2))
    torch.testing.assert_close(engine(x, 3), x**3)
    torch.testing.assert_close(engine(x, 2), x**2)
    assert len(engine.plans) == 2
    assert "2" in engine.explain()


def test_one_and_true_are_different_arguments():
    engine = nimble.compile(lambda x, flag: x + 1 if flag is True else x, (torch.ones(2), True))
    assert engine(torch.ones(2), 1).tolist() == [1, 1]
    assert engine(torch.ones(2), True).tolist() == [2, 2]


def test_whether_two_arguments_are_the_same_tensor_belongs_to_the_signature():
    def model(x, y):
        return x * 2 if x is y else x + y

    a, b = torch.ones(2), torch.full((2,), 5.0)
    engine = nimble.compile(model, (a, a))
    assert engine(a, a).tolist() == [2, 2]
    assert engine(a, b).tolist() == [6, 6]
    assert engine(b, b).tolist() == [10, 10]


def test_no_inputs():
    engine = nimble.compile(lambda: torch.arange(3) + 1)
    assert engine().tolist() == [1, 2, 3]


def test_bound_methods_and_closures_find_their_modules():
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    for function in (layer.forward, lambda x: layer(x).relu()):
        engine = nimble.compile(function, (x,))
        with torch.no_grad():
            layer.weight.mul_(2)
            torch.testing.assert_close(engine(x), function(x))


def test_exported_program():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3)
    same_result = nimble.compile(torch.export.export(model, (x,)), (x,))(x)
    torch.testing.assert_close(same_result, model(x).detach())


def test_a_container_changed_by_the_model_is_refused():
    def model(x, cache):
        cache.append(x + 1)
        return cache[0]

    with pytest.raises(CaptureError, match="return the new container"):
        nimble.compile(model, (torch.ones(2), [torch.ones(2)]))
