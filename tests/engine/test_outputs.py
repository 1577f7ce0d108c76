"""Results own, share and lay out memory as eager's do."""

import pytest
import torch
from torch import nn

import nimble


def test_views_of_one_output_share_memory():
    engine = nimble.compile(lambda x: (lambda y: (y, y[1:], y.t()))(x + 1), (torch.ones(3, 3),))
    whole, part, turned = engine(torch.ones(3, 3))
    whole[1, 0] = 9
    assert part[0, 0] == 9
    assert turned[0, 1] == 9
    assert part.storage_offset() == 3


def test_outputs_that_are_inputs_are_the_same_object():
    engine = nimble.compile(lambda x, y: (y, x, x + y, y.view(-1)), (torch.ones(2), torch.ones(2)))
    x, y = torch.ones(2), torch.ones(2)
    first, second, _, third = engine(x, y)
    assert first is y
    assert second is x
    assert third.data_ptr() == y.data_ptr()


def test_a_mutated_input_that_is_returned_is_the_input():
    engine = nimble.compile(lambda x: x.add_(1), (torch.ones(2),))
    x = torch.ones(2)
    assert engine(x) is x
    assert x.tolist() == [2, 2]


def test_parameters_that_are_returned_are_the_modules_own():
    model = nn.Linear(2, 2)
    engine = nimble.compile(lambda x: (model(x), model.weight), (torch.ones(2),))
    assert engine(torch.ones(2))[1].data_ptr() == model.weight.data_ptr()


def test_one_tensor_returned_twice_is_one_object():
    engine = nimble.compile(lambda x: (lambda y: (y, y))(x * 2), (torch.ones(2),))
    a, b = engine(torch.ones(2))
    assert a is b


def test_equal_computations_returned_twice_are_two_tensors():
    engine = nimble.compile(lambda x: (x * 2, x * 2), (torch.ones(2),))
    a, b = engine(torch.ones(2))
    a.zero_()
    assert b.tolist() == [2, 2]


def test_outputs_are_not_overwritten_by_later_calls():
    engine = nimble.compile(lambda x: x * 2, (torch.ones(4),))
    kept = [engine(torch.full((4,), float(i))) for i in range(20)]
    assert [t[0].item() for t in kept] == [2.0 * i for i in range(20)]


def test_a_constant_result_is_fresh_at_every_call():
    model = nn.Linear(2, 2)
    engine = nimble.compile(lambda x: (x + 1, model.weight * 2), (torch.ones(2),))
    engine(torch.ones(2))[1].zero_()
    torch.testing.assert_close(engine(torch.ones(2))[1], model.weight.detach() * 2)


def test_strides_are_those_of_eager():
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


def test_channels_last_stays_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    got = nimble.compile(model, (x,))(x)
    expected = model(x).detach()
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)


def test_strides_are_those_of_the_kernel_where_the_shape_function_is_mistaken():
    def model(x):
        return torch.relu(x)

    x = torch.randn(1, 2).t()
    assert nimble.compile(model, (x,))(x).stride() == model(x).stride()


def test_max_pooling_over_one_dimension_is_laid_out_as_eagers_own_kernel_does():
    functional = nn.functional

    def model(x):
        turned = x.transpose(1, 2)
        rows = functional.max_pool1d(turned, 2).view(len(x), -1)
        whole = functional.max_pool1d(turned, kernel_size=12)
        shown = functional.max_pool1d(turned, 2).as_strided((3,), (1,))
        with_indices = functional.max_pool1d(turned, 2, return_indices=True)
        each = torch.vmap(lambda y: functional.max_pool1d(y.t(), 2))(x)
        alone = torch.max_pool1d(turned[0], 3, 2, 1)
        return rows, whole, shown, *with_indices, each, alone, nn.MaxPool1d(2)(x)

    x = torch.randn(2, 12, 5)
    got, expected = nimble.compile(model, (x,))(x), model(x)
    assert [t.stride() for t in got] == [t.stride() for t in expected]
    torch.testing.assert_close(got, expected)


def test_max_pooling_over_one_dimension_is_copied_only_where_it_lies_otherwise():
    engine = nimble.compile(nn.MaxPool1d(2), (torch.randn(2, 5, 12),))
    engine(torch.randn(2, 12, 5).transpose(1, 2))
    plain, turned = engine.plans
    assert len(plain.source.tasks) == 1
    assert len(turned.source.tasks) == 2
    assert not any(task.op.startswith("aten.max_pool") for task in turned.graph.tasks)


def same_views(model, turned):
    """Results that show an updated input are views of it, as eager's are."""

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


@pytest.mark.parametrize("turned", [False, True])
def test_a_returned_view_of_an_input_that_was_updated_whole(turned):
    def model(x):
        v = x.unsqueeze(0)
        v.zero_()
        return x, v

    same_views(model, turned)


@pytest.mark.parametrize("turned", [False, True])
def test_returned_views_of_parts_of_an_updated_input(turned):
    def model(x):
        v = x[1:, ::2]
        x.add_(1)
        v.mul_(2)
        return v, x.t(), v.t(), x[0]

    same_views(model, turned)
