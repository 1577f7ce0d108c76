"""What a replay would not repeat is refused, and the error says what to do."""

import functools
import random
import runpy

import numpy as np
import pytest
import torch
import torch._dynamo  # Replaces torch.manual_seed when it is imported.
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import nimble
from nimble.errors import CaptureError, InputError, UnsupportedOpError


def refused(match, model, *args):
    with pytest.raises(CaptureError, match=match) as caught:
        nimble.compile(model, args)
    assert "tlparse" not in str(caught.value)
    assert "INTERNAL ASSERT" not in str(caught.value)


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def seeded(x):
    torch.manual_seed(3)
    return x + torch.rand(2)


def seeded_by_the_generator(x):
    torch.default_generator.manual_seed(12345)
    return x + torch.rand(2)


def forked(x):
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand(2)


@pytest.mark.parametrize("model", [seeded, seeded_by_the_generator, forked])
def test_seeding_in_the_model(model):
    before = torch.manual_seed
    refused("seed it outside of the model", model, torch.ones(2))
    assert torch.manual_seed is before


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_python(draw):
    refused("torch.rand", lambda x: x * draw(), torch.ones(2))


def test_a_hook_that_keeps_a_tensor():
    kept = {}
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hook = model[0].register_forward_hook(lambda module, args, result: kept.update(x=result))
    refused("kept a tensor of the trace", model, torch.ones(1, 2))
    hook.remove()
    nimble.compile(model, (torch.ones(1, 2),))


def test_a_cache_that_keeps_a_tensor():
    @functools.cache
    def positions(count):
        return torch.arange(count) * 2

    refused("kept a tensor of the trace", lambda x: x + positions(2), torch.ones(2))


def test_a_tensor_that_is_no_buffer_updated_in_place():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.total = torch.zeros(2)

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    refused("register_buffer", Plain(), torch.ones(2))


def test_an_input_given_other_memory():
    refused(r"x\.copy_\(y\)", lambda x: (x.set_(torch.ones(2)), x * 2)[1], torch.ones(2))


def test_an_expanded_input_updated_in_place():
    refused(r"\'x\'.*\.contiguous\(\)", lambda x: x.add_(1), torch.ones(2, 1).expand(2, 3))


def test_an_error_of_the_model_on_its_example():
    table = torch.eye(3)
    match = r"IndexError at .*embedding\.default ran on the example arguments: index out of range"
    refused(match, lambda i: nn.functional.embedding(i, table), torch.tensor([7]))


def test_sparse_tensors_inside_and_as_a_result():
    refused(r"\.to_dense\(\)", lambda x: x.to_sparse().to_dense(), torch.eye(2))
    refused(r"\.to_dense\(\)", lambda x: x.to_sparse(), torch.eye(2))


def test_scripted_modules():
    with pytest.warns(DeprecationWarning, match="jit"):
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    refused("torch.jit", scripted, torch.ones(1, 2))


def test_a_model_made_under_inference_mode():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    refused(r"'weight'.*inference_mode", model, torch.ones(1, 2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors():
    engine = nimble.compile(lambda x: x * 2, (torch.ones(2),))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for call in (engine, lambda x: nimble.compile(lambda x: x * 2, (x,))):
        with pytest.raises(InputError, match="to_padded_tensor"):
            call(nested)


def test_inputs_that_share_memory_say_what_to_do():
    engine = nimble.compile(lambda x, y: (x.add_(1), y * 2)[1], (torch.ones(4), torch.ones(2, 2)))
    x = torch.ones(4)
    with pytest.raises(InputError, match=r"x: .*\by\b.*\.clone\(\)"):
        engine(x, x.view(2, 2))


def test_numbers_out_of_range():
    engine = nimble.compile(lambda x: x * 2, (torch.ones(2),))
    with pytest.raises(InputError, match="from -1 to 0"):
        engine.timeline(9)
    with pytest.raises(InputError, match="from 1 to 1024"):
        nimble.compile(lambda x: x * 2, (torch.ones(2),), workers=2000)


def test_an_index_taken_out_of_a_tensor_is_told_what_does_without():
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


def test_sizes_that_are_in_a_tensor():
    def model(x, seen):
        size = (seen[:, 0].sum(), seen[0].sum())
        return nn.functional.interpolate(x, size=size, mode="bilinear")

    refused("depends on the data", model, torch.randn(1, 2, 4, 4), torch.ones(4, 4).long())


def test_distributions_that_check_their_data():
    def model(x, check):
        return torch.distributions.Normal(x, x.exp(), validate_args=check).log_prob(x)

    x = torch.randn(4)
    with pytest.raises(CaptureError, match=r"validate_args=False.*backend=\"nimble\""):
        nimble.compile(model, (x, True))
    torch.testing.assert_close(nimble.compile(model, (x, False))(x, False), model(x, True))


def test_models_that_make_less_while_they_are_compiled():
    def model(x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones(x.shape[0])
        return x * mask[:, None]

    given = (torch.randn(4, 3),)
    with pytest.raises(CaptureError, match=r"raised TypeError.*is_compiling.*pass such arguments"):
        nimble.compile(model, given)
    advised = (*given, torch.ones(4))
    assert torch.equal(nimble.compile(model, advised)(*advised), model(*given))


def test_operators_that_check_their_data():
    for op in (torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x)):
        with pytest.raises(CaptureError, match=r"may raise for its data.*backend=\"nimble\""):
            nimble.compile(op, (torch.eye(3),))


def test_control_flow_names_the_line_and_the_other_door():
    def model(x):
        if x.sum() > 0:  # the line to be named
            return x
        return -x

    with pytest.raises(
        CaptureError, match=r"test_refusals\.py:\d+ in model.*backend=\"nimble\""
    ) as error:
        nimble.compile(model, (torch.ones(2),))
    assert "if x.sum() > 0" in str(error.value)


def test_shapes_that_depend_on_data():
    with pytest.raises(UnsupportedOpError, match=r"nonzero.*test_refusals\.py"):
        nimble.compile(lambda x: x.nonzero(), (torch.ones(2),))


def test_numbers_taken_out_of_tensors():
    with pytest.raises(CaptureError, match="Python number"):
        nimble.compile(lambda x: x * x.sum().item(), (torch.ones(2),))


def test_operators_implemented_in_python():
    @torch.library.custom_op("nimble_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    with pytest.raises(UnsupportedOpError, match=r"nimble_test\.twice.*Python"):
        nimble.compile(lambda x: twice(x) + 1, (torch.ones(2),))


def test_a_generator_of_the_models_own():
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(CaptureError, match="manual_seed"):
        nimble.compile(lambda x: x + torch.rand(2, generator=generator), (torch.ones(2),))


def test_the_models_own_errors_are_told_with_their_line():
    with pytest.raises(CaptureError, match=r"test_refusals\.py:\d+"):
        nimble.compile(lambda x: x @ torch.ones(3), (torch.ones(2),))


def test_errors_in_modules_of_pytorchs_are_told_with_the_line_of_the_call():
    engine = nimble.compile(nn.Sequential(nn.Linear(4, 4)), (torch.randn(2, 4),))
    for x in (torch.randn(2, 5), torch.randn(2, 4).double()):
        with pytest.raises(
            CaptureError, match=r"test_refusals\.py:\d+ in test_errors.*engine\(x\)"
        ):
            engine(x)


def test_only_lines_of_the_model_are_written_beside_tasks():
    engine = nimble.compile(nn.Sequential(nn.Linear(4, 4), Doubled()), (torch.randn(2, 4),))
    linear, doubled = (task.origin for task in engine.plans[0].source.tasks)
    assert linear == "0"
    assert doubled.startswith("1 ")
    assert doubled.endswith("`return x * 2`")


def test_long_lines_are_told_in_part(tmp_path):
    file = tmp_path / "written.py"
    file.write_text(f"def model(x):\n    return x.view({'1, ' * 100})\n")
    model = runpy.run_path(str(file))["model"]
    with pytest.raises(CaptureError, match=r"written\.py:2 in model: `return x.{149}\.\.\.`"):
        nimble.compile(model, (torch.ones(2),))


def test_packed_sequences():
    layer, lengths = nn.LSTM(5, 3, batch_first=True), torch.tensor([4, 3])

    def model(x):
        return layer(pack_padded_sequence(x, lengths, batch_first=True))[1][0]

    x = torch.randn(2, 4, 5)
    match = r"packed sequences cannot be captured at .*test_refusals\.py:\d+.*padded tensor"
    refused(match, model, x)
    refused(match, lambda x: pack_padded_sequence(x, [4, 3], batch_first=True).data, x)
    refused(match, lambda p: layer(p)[0].data, pack_padded_sequence(x, lengths, batch_first=True))


def test_what_is_no_model():
    with pytest.raises(CaptureError, match=r"expected an nn\.Module"):
        nimble.compile(3, ())


@pytest.mark.parametrize("replaces", [
    lambda x, cache: cache.update(k=torch.cat([cache["k"], x])),
    lambda x, cache: cache.update(k=cache["k"] + x),
])  # fmt: skip
def test_an_entry_of_an_argument_that_the_model_replaces(replaces):
    def model(x, cache):
        replaces(x, cache)
        return x + 1

    with pytest.raises(CaptureError, match="changes a list, dict or other container"):
        nimble.compile(model, (torch.ones(2), {"k": torch.zeros(2)}))


def test_weights_that_a_hook_computes_say_how_to_go_on():
    with pytest.warns(FutureWarning):
        model = nn.utils.weight_norm(nn.Linear(4, 4))
    with pytest.raises(CaptureError, match="remove_weight_norm"):
        nimble.compile(model, (torch.randn(1, 4),))
