"""What can be captured, and that the replay is what eager does."""

import copy
import dataclasses
from collections import OrderedDict, namedtuple

import foreign
import pytest
import torch
from torch import nn

import nimble
from nimble.errors import CaptureError, UnsupportedOpError


def same(model, *args, **kwargs):
    """Compile, call twice, compare results, strides and aliasing with eager."""
    engine = nimble.compile(model, args, kwargs)
    for _ in range(2):
        torch.testing.assert_close(engine(*args, **kwargs), model(*args, **kwargs))
    return engine


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Boxes:
    corners: torch.Tensor
    scores: torch.Tensor
    label: str = "cat"


class TestStructures:
    def test_nested_containers_go_in_and_come_out(self):
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

    def test_hugging_face_outputs_keep_their_class(self):
        if not foreign.installed("transformers"):
            pytest.skip("transformers is not installed")
        foreign.load("torchvision")
        transformers = foreign.load("transformers")
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

    def test_a_hugging_face_cache_comes_out_new_at_every_call(self):
        if not foreign.installed("transformers"):
            pytest.skip("transformers is not installed")
        transformers = foreign.load("transformers")
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

    def test_objects_of_any_ordinary_class_come_out_new_at_every_call(self):
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

    def test_an_object_that_cannot_be_rebuilt_is_refused_by_its_place(self):
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

    def test_attributes_of_a_dataclass_that_are_no_fields_come_out(self):
        def model(x):
            boxes = Boxes(x, x)
            boxes.area = x * 2
            return boxes

        assert nimble.compile(model, (torch.ones(2),))(torch.ones(2)).area.tolist() == [2, 2]

    def test_keyword_arguments_arrive_in_the_order_of_the_call(self):
        def model(**named):
            return {name: x + 1 for name, x in named.items()}, torch.cat(list(named.values()))

        a, b = torch.zeros(1), torch.ones(1)
        engine = nimble.compile(model, (), {"b": b, "a": a})
        for named in ({"b": b, "a": a}, {"a": a, "b": b}):
            got, expected = engine(**named), model(**named)
            assert list(got[0]) == list(expected[0])
            assert got[1].tolist() == expected[1].tolist()

    def test_zeros_of_either_sign_are_different_arguments(self):
        engine = nimble.compile(lambda x, y: x / y, (torch.ones(1), 0.0))
        assert engine(torch.ones(1), -0.0).item() == -float("inf")
        assert engine(torch.ones(1), 0.0).item() == float("inf")
        engine(torch.ones(1), float("nan"))
        engine(torch.ones(1), float("nan"))
        assert len(engine.plans) == 3

    def test_non_tensor_arguments_belong_to_the_signature(self):
        def model(x, power):
            return x**power

        x = torch.rand(4)
        engine = nimble.compile(model, (x, 2))
        torch.testing.assert_close(engine(x, 3), x**3)
        torch.testing.assert_close(engine(x, 2), x**2)
        assert len(engine.plans) == 2
        assert "2" in engine.explain()

    def test_one_and_true_are_different_arguments(self):
        engine = nimble.compile(lambda x, flag: x + 1 if flag is True else x, (torch.ones(2), True))
        assert engine(torch.ones(2), 1).tolist() == [1, 1]
        assert engine(torch.ones(2), True).tolist() == [2, 2]

    def test_whether_two_arguments_are_the_same_tensor_belongs_to_the_signature(self):
        def model(x, y):
            return x * 2 if x is y else x + y

        a, b = torch.ones(2), torch.full((2,), 5.0)
        engine = nimble.compile(model, (a, a))
        assert engine(a, a).tolist() == [2, 2]
        assert engine(a, b).tolist() == [6, 6]
        assert engine(b, b).tolist() == [10, 10]

    def test_no_inputs(self):
        engine = nimble.compile(lambda: torch.arange(3) + 1)
        assert engine().tolist() == [1, 2, 3]

    def test_bound_methods_and_closures_find_their_modules(self):
        layer = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        for function in (layer.forward, lambda x: layer(x).relu()):
            engine = nimble.compile(function, (x,))
            with torch.no_grad():
                layer.weight.mul_(2)
                torch.testing.assert_close(engine(x), function(x))

    def test_exported_program(self):
        model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3)
        same_result = nimble.compile(torch.export.export(model, (x,)), (x,))(x)
        torch.testing.assert_close(same_result, model(x).detach())

    def test_a_container_changed_by_the_model_is_refused(self):
        def model(x, cache):
            cache.append(x + 1)
            return cache[0]

        with pytest.raises(CaptureError, match="return the new container"):
            nimble.compile(model, (torch.ones(2), [torch.ones(2)]))


class TestState:
    def test_batch_norm_statistics_advance_and_are_visible_in_the_module(self):
        torch.manual_seed(0)
        mine, theirs = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        engine = nimble.compile(mine, (torch.randn(8, 4),))
        assert mine.num_batches_tracked.item() == 0, "compiling must not train"
        for _ in range(3):
            x = torch.randn(8, 4)
            torch.testing.assert_close(engine(x), theirs(x))
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())

    def test_a_cache_written_in_place(self):
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

    def test_buffers_that_change_places(self):
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

    def test_conjugated_inputs_are_updated(self):
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

    def test_a_negated_view_of_an_updated_input(self):
        def model(x):
            x.real.mul_(2)
            return x.conj().imag, x.conj()

        x = torch.randn(3, dtype=torch.complex64)
        theirs = x.clone()
        got, expected = nimble.compile(model, (x,))(x), model(theirs)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(x, theirs)

    def test_a_buffer_replaced_by_assignment(self):
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

    def test_the_old_contents_of_a_replaced_buffer_may_be_returned(self):
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

    def test_python_state_is_refused_by_name(self):
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

    def test_caches_in_lists_and_dicts_are_refused_and_left_as_they_were(self):
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

    def test_a_recurrent_layer_still_runs_eagerly_afterwards(self):
        model, x = nn.LSTM(3, 4, num_layers=2), torch.randn(5, 1, 3)
        with torch.no_grad():
            expected = model(x)
            engine = nimble.compile(model, (x,))
            torch.testing.assert_close(engine(x), expected)
            torch.testing.assert_close(model(x), expected)
            model.weight_hh_l0.mul_(2)
            torch.testing.assert_close(engine(x), model(x))

    def test_mutated_inputs_are_written_back(self):
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

    def test_parameters_shared_between_modules(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        model[2].weight = model[0].weight
        x = torch.randn(2, 3)
        engine = nimble.compile(model, (x,))
        with torch.no_grad():
            model[2].weight.add_(1)
            torch.testing.assert_close(engine(x), model(x))


class TestOutputs:
    def test_views_of_one_output_share_memory(self):
        engine = nimble.compile(lambda x: (lambda y: (y, y[1:], y.t()))(x + 1), (torch.ones(3, 3),))
        whole, part, turned = engine(torch.ones(3, 3))
        whole[1, 0] = 9
        assert part[0, 0] == 9
        assert turned[0, 1] == 9
        assert part.storage_offset() == 3

    def test_outputs_that_are_inputs_are_the_same_object(self):
        engine = nimble.compile(
            lambda x, y: (y, x, x + y, y.view(-1)), (torch.ones(2), torch.ones(2))
        )
        x, y = torch.ones(2), torch.ones(2)
        first, second, _, third = engine(x, y)
        assert first is y
        assert second is x
        assert third.data_ptr() == y.data_ptr()

    def test_a_mutated_input_that_is_returned_is_the_input(self):
        engine = nimble.compile(lambda x: x.add_(1), (torch.ones(2),))
        x = torch.ones(2)
        assert engine(x) is x
        assert x.tolist() == [2, 2]

    def test_parameters_that_are_returned_are_the_modules_own(self):
        model = nn.Linear(2, 2)
        engine = nimble.compile(lambda x: (model(x), model.weight), (torch.ones(2),))
        assert engine(torch.ones(2))[1].data_ptr() == model.weight.data_ptr()

    def test_one_tensor_returned_twice_is_one_object(self):
        engine = nimble.compile(lambda x: (lambda y: (y, y))(x * 2), (torch.ones(2),))
        a, b = engine(torch.ones(2))
        assert a is b

    def test_equal_computations_returned_twice_are_two_tensors(self):
        engine = nimble.compile(lambda x: (x * 2, x * 2), (torch.ones(2),))
        a, b = engine(torch.ones(2))
        a.zero_()
        assert b.tolist() == [2, 2]

    def test_outputs_are_not_overwritten_by_later_calls(self):
        engine = nimble.compile(lambda x: x * 2, (torch.ones(4),))
        kept = [engine(torch.full((4,), float(i))) for i in range(20)]
        assert [t[0].item() for t in kept] == [2.0 * i for i in range(20)]

    def test_a_constant_result_is_fresh_at_every_call(self):
        model = nn.Linear(2, 2)
        engine = nimble.compile(lambda x: (x + 1, model.weight * 2), (torch.ones(2),))
        engine(torch.ones(2))[1].zero_()
        torch.testing.assert_close(engine(torch.ones(2))[1], model.weight.detach() * 2)

    def test_strides_are_those_of_eager(self):
        def model(x):
            return x.permute(2, 0, 1) + 1, x.expand(2, *x.shape).sum(0), x.contiguous()[:, ::2]

        for x in (
            torch.randn(4, 5, 6),
            torch.randn(6, 5, 4).permute(2, 1, 0),
            torch.randn(8, 5, 6)[::2],
        ):
            got, expected = nimble.compile(model, (x,))(x), model(x)
            assert [t.stride() for t in got] == [t.stride() for t in expected]
            torch.testing.assert_close(got, expected)

    def test_channels_last_stays_channels_last(self):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        got = nimble.compile(model, (x,))(x)
        expected = model(x).detach()
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


class TestNumbers:
    @pytest.mark.parametrize(
        "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
    )
    def test_dtypes(self, dtype):
        x = torch.tensor([[0, 1, 2], [1, 0, 1]]).to(getattr(torch, dtype))
        same(lambda x: (x.logical_not(), torch.cat([x, x]).flip(0), x.sum(0), x == x[0]), x)

    def test_complex_numbers_conjugated_lazily(self):
        x = torch.randn(3, 3, dtype=torch.complex64)
        same(lambda x: (x.conj() @ x, x.conj().real, torch.view_as_real(x)), x)

    def test_autocast_inside_the_model_and_around_the_call(self):
        layer, x = nn.Linear(8, 8), torch.randn(2, 8)

        def model(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = layer(x)
            return y, layer(x)

        with torch.no_grad():
            same(model, x)
            engine = nimble.compile(layer, (x,))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert engine(x).dtype is torch.bfloat16
            assert engine(x).dtype is torch.float32

    def test_inference_mode(self):
        model, x = nn.Linear(3, 3), torch.randn(2, 3)
        with torch.inference_mode():
            engine = nimble.compile(model, (x,))
            torch.testing.assert_close(engine(x), model(x))

    def test_integer_division_nan_and_infinity(self):
        same(lambda x: (x / 0, x * 0.5, x.clamp(max=float("inf"))), torch.tensor([1.0, -1, 2]))


class TestRandomness:
    def model(self, x):
        noisy = nn.functional.dropout(x, 0.5, training=True) + torch.rand(x.shape)
        return noisy * 2, torch.randn(3), torch.randint(0, 9, (4,))

    def test_differs_between_calls_and_repeats_from_a_seed(self):
        x = torch.ones(100)
        engine = nimble.compile(self.model, (x,))
        torch.manual_seed(1)
        first, second = engine(x), engine(x)
        assert not torch.equal(first[0], second[0])
        torch.manual_seed(1)
        torch.testing.assert_close(engine(x), first, rtol=0, atol=0)

    def test_is_eagers_and_independent_of_the_number_of_workers(self):
        x = torch.ones(100)
        torch.manual_seed(2)
        expected = self.model(x)
        for workers in (1, 2, 3):
            engine = nimble.compile(self.model, (x,), workers=workers)
            torch.manual_seed(2)
            torch.testing.assert_close(engine(x), expected)

    def test_compiling_draws_nothing(self):
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        nimble.compile(self.model, (torch.ones(5),))
        assert torch.equal(torch.rand(1), expected)

    def test_dropout_in_train_mode(self):
        model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
        x = torch.ones(1, 4)
        engine = nimble.compile(model, (x,))
        assert not torch.equal(engine(x), engine(x))
        model.eval()
        torch.testing.assert_close(engine(x), model(x).detach())


class TestRefusals:
    def test_an_index_taken_out_of_a_tensor_is_told_what_does_without(self):
        def takes(cache, at, x):
            cache[:, at] = x
            return cache * 2

        def advised(cache, at, x):
            cache.index_copy_(1, at.view(1), x.unsqueeze(1))
            return cache * 2

        given = torch.zeros(2, 5, 3), torch.tensor(3), torch.randn(2, 3)
        with pytest.raises(CaptureError, match=r"index_copy_\(1, i\.view\(1\), y\)"):
            nimble.compile(takes, given)
        engine = nimble.compile(advised, given)
        for at in (0, 4):
            mine, theirs = (run(torch.ones(2, 5, 3), torch.tensor(at), given[2])
                            for run in (engine, takes))  # fmt: skip
            assert torch.equal(mine, theirs)

    def test_a_batch_norm_that_counts_its_calls(self):
        with pytest.raises(CaptureError, match="set momentum to a number"):
            nimble.compile(nn.BatchNorm1d(3, momentum=None), (torch.randn(4, 3),))

    def test_operators_that_check_their_data(self):
        for op in (torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x)):
            with pytest.raises(CaptureError, match=r"may raise for its data.*backend=\"nimble\""):
                nimble.compile(op, (torch.eye(3),))

    def test_control_flow_names_the_line_and_the_other_door(self):
        def model(x):
            if x.sum() > 0:  # the line to be named
                return x
            return -x

        with pytest.raises(
            CaptureError, match=r"test_capture\.py:\d+ in model.*backend=\"nimble\""
        ) as error:
            nimble.compile(model, (torch.ones(2),))
        assert "if x.sum() > 0" in str(error.value)

    def test_shapes_that_depend_on_data(self):
        with pytest.raises(UnsupportedOpError, match=r"nonzero.*test_capture\.py"):
            nimble.compile(lambda x: x.nonzero(), (torch.ones(2),))

    def test_numbers_taken_out_of_tensors(self):
        with pytest.raises(CaptureError, match="Python number"):
            nimble.compile(lambda x: x * x.sum().item(), (torch.ones(2),))

    def test_operators_implemented_in_python(self):
        @torch.library.custom_op("nimble_test::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        twice.register_fake(lambda x: torch.empty_like(x))
        with pytest.raises(UnsupportedOpError, match=r"nimble_test\.twice.*Python"):
            nimble.compile(lambda x: twice(x) + 1, (torch.ones(2),))

    def test_a_generator_of_the_models_own(self):
        generator = torch.Generator().manual_seed(0)
        with pytest.raises(CaptureError, match="manual_seed"):
            nimble.compile(lambda x: x + torch.rand(2, generator=generator), (torch.ones(2),))

    def test_the_models_own_errors_are_told_with_their_line(self):
        with pytest.raises(CaptureError, match=r"test_capture\.py:\d+"):
            nimble.compile(lambda x: x @ torch.ones(3), (torch.ones(2),))

    def test_what_is_no_model(self):
        with pytest.raises(CaptureError, match=r"expected an nn\.Module"):
            nimble.compile(3, ())


class TestUpdatedInputsThatAreReturned:
    """Results that show an updated input are views of it, whichever way the update came about."""

    @pytest.mark.parametrize("turned", [False, True])
    def test_a_view_that_was_updated_whole(self, turned):
        def model(x):
            v = x.unsqueeze(0)
            v.zero_()
            return x, v

        same_views(model, turned)

    @pytest.mark.parametrize("turned", [False, True])
    def test_views_of_parts(self, turned):
        def model(x):
            v = x[1:, ::2]
            x.add_(1)
            v.mul_(2)
            return v, x.t(), v.t(), x[0]

        same_views(model, turned)


def same_views(model, turned):
    def made():
        x = torch.arange(16.0).view(4, 4)
        return x.t() if turned else x

    mine, theirs = made(), made()
    got, expected = nimble.compile(model, (made(),))(mine), model(theirs)
    torch.testing.assert_close(list(got), list(expected))
    for result, eager in zip(got, expected, strict=True):
        assert result.untyped_storage()._cdata == mine.untyped_storage()._cdata
        assert (result.stride(), result.storage_offset()) == (
            eager.stride(),
            eager.storage_offset(),
        )


def test_strides_are_those_of_the_kernel_where_the_shape_function_is_mistaken():
    def model(x):
        return torch.relu(x)

    x = torch.randn(1, 2).t()
    assert nimble.compile(model, (x,))(x).stride() == model(x).stride()
