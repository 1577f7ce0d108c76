"""Bad input gets an error that says what was expected and what came; the engine works on."""

import sys

import pytest
import torch
from torch import nn

import nimble
from nimble import built
from nimble.errors import ArtifactError, CaptureError, InputError


@pytest.fixture
def made():
    model = nn.Linear(4, 3)
    return model, nimble.compile(model, (torch.randn(2, 4),))


def works_on(model, engine):
    x = torch.randn(2, 4)
    torch.testing.assert_close(engine(x), model(x).detach())


def test_wrong_count(made):
    engine = made[1]
    for args in ((), (torch.ones(2, 4), torch.ones(2, 4))):
        with pytest.raises(nimble.NimbleError, match=r"(argument|forward)"):
            engine(*args)
    works_on(*made)


def test_wrong_shape(made):
    with pytest.raises(nimble.NimbleError, match=r"5|shape"):
        made[1](torch.randn(2, 5))
    works_on(*made)


def test_wrong_dtype(made):
    with pytest.raises((nimble.NimbleError, RuntimeError), match=r"Double.*Float"):
        made[1](torch.randn(2, 4, dtype=torch.float64))
    works_on(*made)


def test_wrong_device(made):
    with pytest.raises(InputError, match=r"meta.*CPU"):
        made[1](torch.randn(2, 4, device="meta"))
    works_on(*made)


def test_wrong_layout(made):
    with pytest.raises(InputError, match=r"sparse.*to_dense"):
        made[1](torch.eye(4).to_sparse())
    works_on(*made)


def test_non_contiguous_works_as_eager_does(made):
    model, engine = made
    for x in (torch.randn(4, 2).t(), torch.randn(4, 8)[::2, ::2], torch.randn(1, 4).expand(2, 4)):
        torch.testing.assert_close(engine(x), model(x).detach())


def test_input_that_requires_grad(made):
    model, engine = made
    x = torch.randn(2, 4, requires_grad=True)
    with pytest.raises(InputError, match=r"requires grad.*no_grad"):
        engine(x)
    with torch.no_grad():
        torch.testing.assert_close(engine(x), model(x))
    works_on(*made)


def test_nan_and_infinity_go_through(made):
    model, engine = made
    x = torch.tensor([[float("nan"), 1, 2, 3], [float("inf"), 0, 0, 0]])
    torch.testing.assert_close(engine(x), model(x).detach(), equal_nan=True)


def test_empty_tensor(made):
    assert made[1](torch.empty(0, 4)).shape == (0, 3)
    works_on(*made)


def test_tensor_subclass(made):
    class Odd(torch.Tensor):
        pass

    with pytest.raises(InputError, match="Odd"):
        made[1](torch.randn(2, 4).as_subclass(Odd))
    works_on(*made)


def test_fake_tensor(made):
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.randn(2, 4))
    with pytest.raises(InputError, match="FakeTensor"):
        made[1](fake)
    works_on(*made)


def test_numpy_array(made):
    with pytest.raises(InputError, match="from_numpy"):
        made[1](torch.randn(2, 4).numpy())
    works_on(*made)


def test_errors_inside_kernels_name_the_task_and_leave_the_engine_usable():
    table = nn.Embedding(5, 3)
    engine = nimble.compile(table, (torch.tensor([1, 2]),))
    with pytest.raises(IndexError, match="out of range") as error:
        engine(torch.tensor([1, 7]))
    assert "embedding" in "".join(error.value.__notes__)
    ids = torch.tensor([0, 4])
    torch.testing.assert_close(engine(ids), table(ids).detach())


def test_two_inputs_in_the_same_memory_of_which_one_is_mutated():
    engine = nimble.compile(lambda x, y: x.add_(1) + y, (torch.ones(4), torch.ones(4)))
    x = torch.ones(8)
    with pytest.raises(InputError, match="memory"):
        engine(x[:4], x[2:6])
    assert engine(x[:4], x[4:]).tolist() == [3, 3, 3, 3]


def test_bad_settings():
    for settings in (
        {"workers": 0},
        {"workers": 1.5},
        {"max_plans": 0},
        {"pad": "rows"},
        {"memory_limit": -1},
    ):
        with pytest.raises(InputError):
            nimble.compile(lambda x: x + 1, (torch.ones(1),), **settings)
    with pytest.raises(InputError, match="tuple"):
        nimble.compile(lambda x: x + 1, [torch.ones(1)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shapes": 3}, "expected a list of batch sizes"),
        ({"shapes": {"batch": 3}}, "expected positive ints"),
        ({"max_plans": None}, "max_plans=None"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"memory_limit": -1}, "memory_limit=-1"),
        ({"pad": "rows"}, "pad='rows'"),
    ],
)
def test_options(options, said):
    with pytest.raises(InputError, match=said):
        nimble.compile(nn.Linear(4, 3), (torch.randn(2, 4),), **options)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda x: torch.empty_like(x).random_(0, 10), "torch.randint"),
        (lambda x: torch.from_numpy(x.numpy()), "NumPy array at .*test_bad_input"),
    ],
)
def test_what_cannot_be_traced_says_what_to_do(model, said):
    with pytest.raises(CaptureError, match=said):
        nimble.compile(model, (torch.randn(2),))


class TestAnotherTorch:
    """Nimble refuses to run with a torch it was not built against, and says what to do."""

    def test_of_another_series(self, monkeypatch):
        monkeypatch.setattr(torch, "__version__", "2.14.0+cpu")
        with pytest.raises(ImportError, match=r"supports torch 2\.13\.x.*pip install 'torch=="):
            built.check()

    def test_of_another_release(self, monkeypatch):
        monkeypatch.setattr(torch, "__version__", "2.13.1")
        with pytest.raises(ImportError, match=r"built against torch 2\.13\.0.*build Nimble again"):
            built.check()

    def test_that_the_extension_does_not_load_with(self, monkeypatch):
        monkeypatch.delattr(nimble, "_aten")
        monkeypatch.setitem(sys.modules, "nimble._aten", None)
        with pytest.raises(ImportError, match=r"does not load with torch .*pip install"):
            built.check()

    def test_of_another_build_of_the_same_release_is_fine(self, monkeypatch):
        monkeypatch.setattr(torch, "__version__", "2.13.0+local")
        built.check()


def test_an_update_of_an_empty_tensor():
    def model(x):
        return x.add_(1)

    for shape in ((2, 0, 1), (0,), (0, 3)):
        x = torch.empty(shape)
        assert nimble.compile(model, (x,))(x).shape == shape


def test_a_tensor_whose_storage_was_taken_away_is_refused():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    engine = nimble.compile(model, (x,))
    gone = torch.randn(2, 4)
    gone.untyped_storage().resize_(8)
    with pytest.raises(
        InputError, match="input: has a storage of fewer bytes than its shape needs"
    ):
        engine(gone)
    engine.bind(x)
    x.untyped_storage().resize_(0)
    with pytest.raises(InputError, match="fewer bytes than its shape needs"):
        engine.run()
    engine(torch.randn(2, 4))


def test_a_refusal_compares_with_the_plan_that_is_most_alike():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    engine = nimble.compile(model, (torch.randn(1, 3, 8, 8),), shapes=[1, 4], strict_shapes=True)
    engine(torch.randn(4, 3, 8, 8))
    with pytest.raises(InputError, match=r"float64\[1,3,8,8\] instead of float32\[1,3,8,8\]"):
        engine(torch.randn(1, 3, 8, 8).double())


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    engine = nimble.compile(nn.ReLU(), (torch.randn(3),))
    with pytest.raises(ArtifactError, match=r"no_such_folder/model.nimble cannot be written"):
        engine.save(tmp_path / "no_such_folder" / "model.nimble")


def test_a_bound_engine_tells_a_replaced_module_from_another_mode():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), torch.randn(2, 3)
    engine = nimble.compile(model, (x,))
    engine.bind(x)
    model[1] = nn.Tanh()
    with pytest.raises(InputError, match=r"since the model has changed \(.*submodules.*\): bind"):
        engine.run()
