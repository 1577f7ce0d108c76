"""What users do between steps, around them and in the middle of one: as in eager, or told."""

import threading
import warnings

import pytest
import torch
from steps import OPTIMIZERS, assert_same, assert_same_state, batches, eager_step, pair
from torch import nn

import nimble
from nimble.errors import CaptureError, InputError, RecompileWarning


class Trainer:
    """Holds the step, and counts."""

    def __init__(self, model, batch):
        self.taken, self.history, self.smoothing = 0, [], 0.1
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.step = nimble.compile_step(model, self.loss, optimizer, batch)

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target, label_smoothing=self.smoothing)

    def take(self, batch):
        self.taken += 1
        self.history.append(self.step(*batch))
        return self.history[-1]


def test_an_object_that_holds_both_the_loss_and_the_step_keeps_its_plan():
    model, _ = pair(torch.float32)
    data = batches(4, torch.float32)
    trainer = Trainer(model, data[0])
    (engine,) = trainer.step.engines
    plan = engine.plans[0]
    for batch in data:
        trainer.take(batch)
        assert list(engine.plans) == [plan]
    trainer.smoothing = 0.9  # This one the loss reads.
    expected = trainer.loss(model(data[0][0]), data[0][1])
    torch.testing.assert_close(trainer.take(data[0]), expected.detach())
    assert list(engine.plans) != [plan]


class Scaled:
    """Another object does the work."""

    def __init__(self):
        self.scale = 2.0

    def of(self, output, target):
        return self.scale * nn.functional.cross_entropy(output, target)


class Delegating:
    def __init__(self):
        self.inner = Scaled()

    def loss(self, output, target):
        return self.inner.of(output, target)


def test_attributes_that_a_method_of_another_object_reads_are_watched():
    model, _ = pair(torch.float32)
    batch = batches(1, torch.float32)[0]
    losses = Delegating()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = nimble.compile_step(model, losses.loss, optimizer, batch)
    once = step(*batch)
    losses.inner.scale = 6.0
    torch.testing.assert_close(step(*batch), 3 * once)


@pytest.mark.parametrize("how", ["emptied", "deleted", "swapped"])
def test_an_entry_of_the_state_that_is_replaced(how):
    mine, theirs = pair()
    optimizers = [OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs)]
    data = batches(4)
    step = nimble.compile_step(mine, nn.functional.cross_entropy, optimizers[0], data[0])
    for turn, (x, y) in enumerate(data):
        if turn == 2:
            for model, optimizer in zip((mine, theirs), optimizers, strict=True):
                first, other = model.first.weight, model.norm.weight
                if how == "emptied":
                    optimizer.state[first] = {}
                elif how == "deleted":
                    del optimizer.state[first]
                else:
                    other = model.norm.bias
                    state = optimizer.state
                    state[model.norm.weight], state[other] = state[other], state[model.norm.weight]
        step(x, y)
        eager_step(theirs, optimizers[1], x, y)
        assert_same(mine, theirs)
    assert_same_state(*optimizers)


def test_parameters_that_come_to_share_memory_are_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 4), torch.randn(8, 4)
    step = nimble.compile_step(model, nn.functional.mse_loss, optimizer, batch)
    step(*batch)
    model[2].weight.data = model[0].weight.data
    with pytest.raises(CaptureError, match="shares memory"):
        step(*batch)


def test_a_look_at_the_graph_changes_nothing():
    class Sometimes(nn.Module):
        """The second layer is for batches of eight."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.first(x)
            return self.second(x) if len(x) == 8 else x

    torch.manual_seed(0)
    mine, theirs = Sometimes().double(), Sometimes().double()
    theirs.load_state_dict(mine.state_dict())
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (mine, theirs)]
    data = {n: (torch.randn(n, 3, dtype=torch.float64), torch.randint(0, 4, (n,))) for n in (4, 8)}
    step = nimble.compile_step(mine, nn.functional.cross_entropy, optimizers[0], data[8])
    for rows in (4, 8, 4, 4, 8, 8):
        step.graph(*data[4])
        step(*data[rows])
        eager_step(theirs, optimizers[1], *data[rows])
        assert_same(mine, theirs)


class TwoSides(nn.Module):
    """Of which the second looks up what may not be there."""

    def __init__(self):
        super().__init__()
        self.linear, self.table = nn.Linear(64, 64), nn.Embedding(10, 64)

    def forward(self, x, rows):
        return self.linear(x).square().mean() + self.table(rows).square().mean()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_that_fails_has_updated_nothing(dtype, accumulate):
    torch.manual_seed(0)
    mine = TwoSides().to(dtype)
    theirs = TwoSides().to(dtype)
    theirs.load_state_dict(mine.state_dict())
    optimizers = [OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs)]
    batch = torch.randn(32, 64, dtype=dtype), torch.randint(0, 10, (32,))
    wrong = batch[0], torch.full((32,), 10)
    step = nimble.compile_step(mine, None, optimizers[0], batch, workers=2, accumulate=accumulate)
    for _ in range(2):
        for _ in range(accumulate):
            step(*batch)
        for _ in range(5):
            with pytest.raises((IndexError, nimble.NimbleError)):
                step(*wrong)
        optimizers[1].zero_grad()
        theirs(*batch).backward()
        optimizers[1].step()
        assert_same(mine, theirs, 1e-6)


def test_a_model_that_is_converted_halfway():
    mine, theirs = pair(torch.float32)
    batch = batches(1)[0]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, theirs)]
    step = nimble.compile_step(
        mine, nn.functional.cross_entropy, optimizers[0], (batch[0].float(), batch[1]),
        keep_grads=True,
    )  # fmt: skip
    step(batch[0].float(), batch[1])
    eager_step(theirs, optimizers[1], batch[0].float(), batch[1])
    theirs.load_state_dict(mine.state_dict())
    mine.double()
    theirs.double()
    for _ in range(3):
        step(*batch)
        eager_step(theirs, optimizers[1], *batch)
    assert_same(mine, theirs)
    assert mine.last.weight.grad.dtype is torch.float64


def test_state_of_another_type_than_its_parameter_is_told():
    model, _ = pair(torch.float32)
    x, y = batches(1, torch.float32)[0]
    optimizer = torch.optim.Adam(model.parameters())
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, (x, y))
    step(x, y)
    model.double()
    with pytest.raises(InputError, match="make a new optimizer"):
        step(x.double(), y)


class WithLoss(nn.Module):
    """A layer that is called as the loss might be."""

    def __init__(self):
        super().__init__()
        self.loss = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return self.loss(x)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))

    def forward(self, output, target):
        return (output @ self.weight - target).square().mean()


def test_a_layer_called_loss_beside_a_loss_with_parameters():
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        model, loss = WithLoss().double(), Weighted().double()
        optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
        made.append((model, loss, optimizer))
    (mine, my_loss, optimizer), (theirs, their_loss, reference) = made
    batch = torch.randn(8, 4, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)
    step = nimble.compile_step(mine, my_loss, optimizer, batch)
    for _ in range(3):
        step(*batch)
        eager_step(theirs, reference, *batch, loss_fn=their_loss)
    assert_same(mine, theirs)
    assert_same(my_loss, their_loss)


@pytest.mark.parametrize("method", ["zero_grad", "prepare", "explain"])
def test_hooks_may_call_the_step(method):
    model, _ = pair(torch.float32)
    batch = batches(1, torch.float32)[0]
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, batch)
    given = batch if method == "prepare" else ()
    optimizer.register_step_post_hook(lambda *_: getattr(step, method)(*given) and None)
    done = threading.Thread(target=lambda: step(*batch), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive(), "it waits for itself"


def test_what_cannot_be_followed_is_told():
    model, _ = pair(torch.float32)
    batch = batches(1, torch.float32)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of the same.
        twice = torch.optim.SGD([model.last.weight, model.last.weight], lr=0.1)
    with pytest.raises(InputError, match="more than once"):
        nimble.compile_step(model, nn.functional.cross_entropy, twice, batch)


def test_distributed_models_are_told(tmp_path):
    model, _ = pair(torch.float32)
    batch = batches(1, torch.float32)[0]
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        with pytest.raises(InputError, match=r"model\.module"):
            nimble.compile_step(wrapped, nn.functional.cross_entropy, optimizer, batch)
    finally:
        torch.distributed.destroy_process_group()


def test_a_loss_in_a_dict_comes_with_its_company():
    model, _ = pair(torch.float32)
    x, y = batches(1, torch.float32)[0]

    def loss_fn(output, target):
        right = (output.argmax(1) == target).float().mean()
        return {"loss": nn.functional.cross_entropy(output, target), "accuracy": right}

    expected = loss_fn(model(x), y)
    step = nimble.compile_step(model, loss_fn, torch.optim.SGD(model.parameters()), (x, y))
    made = step(x, y)
    assert made.keys() == expected.keys()
    torch.testing.assert_close(made["loss"], expected["loss"].detach())
    torch.testing.assert_close(made["accuracy"], expected["accuracy"])


def test_a_frozen_parameter_has_no_gradient_left():
    model, _ = pair(torch.float32)
    x, y = batches(1, torch.float32)[0]
    optimizer = torch.optim.SGD(model.parameters())
    nn.functional.cross_entropy(model(x), y).backward()
    model.first.requires_grad_(False)
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, (x, y))
    step(x, y)
    assert model.first.weight.grad is None


class Derived(torch.optim.SGD):
    """The same, but for what it is called."""


class Halved(torch.optim.SGD):
    """With a step of its own."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(0.5 * group["lr"] * parameter.grad)


class Keeping(Halved):
    """Which makes its state there."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["last"] = parameter.grad.clone()
        return super().step()


def test_state_made_in_a_step_of_ones_own_is_told():
    model, _ = pair()
    with pytest.raises(CaptureError, match="makes its state itself"):
        nimble.compile_step(
            model, nn.functional.cross_entropy, Keeping(model.parameters(), lr=0.1), batches(1)[0]
        )


@pytest.mark.parametrize("kind", [Derived, Halved])
def test_optimizers_derived_from_one_with_a_rule(kind):
    mine, theirs = pair()
    optimizers = [kind(m.parameters(), lr=0.1, momentum=0.9) for m in (mine, theirs)]
    data = batches(3)
    step = nimble.compile_step(mine, nn.functional.cross_entropy, optimizers[0], data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, optimizers[1], x, y)
    assert_same(mine, theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: torch.optim.SGD(ps, lr=1e-2, momentum=0.99),
        lambda ps: torch.optim.RMSprop(ps, lr=1e-3, alpha=0.99),
        lambda ps: torch.optim.AdamW(ps, lr=1e-3),
    ],
    ids=["sgd", "rmsprop", "adamw"],
)
def test_numbers_are_not_rounded_to_half_precision(make):
    """Of 0.99, bfloat16 makes 0.988: averages would be a sixth too small. They are no further from
    those of float64 than eager's are, which rounds after every operator."""
    made = []
    for _ in range(3):
        torch.manual_seed(0)
        made.append(nn.Linear(16, 16).bfloat16())
    mine, theirs, exact = made
    exact.double()
    optimizers = [make(m.parameters()) for m in made]
    batch = torch.randn(8, 16).bfloat16(), torch.randn(8, 16).bfloat16()
    step = nimble.compile_step(mine, nn.functional.mse_loss, optimizers[0], batch)
    for _ in range(100):
        step(*batch)
        eager_step(theirs, optimizers[1], *batch, loss_fn=nn.functional.mse_loss)
        wide = (tensor.double() for tensor in batch)
        eager_step(exact, optimizers[2], *wide, loss_fn=nn.functional.mse_loss)
    for key in optimizers[1].state[theirs.weight].keys() - {"step"}:
        ours, eagers, wanted = (
            o.state[m.weight][key].double() for o, m in zip(optimizers, made, strict=True)
        )
        assert (ours - wanted).norm() < 1.2 * (eagers - wanted).norm() < 0.1 * wanted.norm()


def test_a_batch_as_a_loader_gives_it_is_an_example():
    model, _ = pair(torch.float32)
    batch = batches(1, torch.float32)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, list(batch))
    assert step(*batch).isfinite()


def test_an_input_that_requires_grad_is_told():
    model, _ = pair(torch.float32)
    x, y = batches(1, torch.float32)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, (x, y))
    with pytest.raises(InputError, match=r"pass tensor\.detach\(\)"):
        step(x.clone().requires_grad_(), y)


def test_a_number_that_differs_in_every_step_is_told():
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x, beta):
            return self.inner(x) * beta

    model, x, y = Annealed(), torch.randn(5, 4), torch.randint(0, 3, (5,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.compile_step(model, nn.functional.cross_entropy, optimizer, (x, 0.5, y))
    for number in range(4):
        step(x, number / 8, y)
    with pytest.warns(RecompileWarning, match="better a tensor"):
        step(x, 0.7, y)


class Lion(torch.optim.Optimizer):
    """As many write it: the state is made where it is needed first."""

    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                mean = self.state[parameter].setdefault("m", torch.zeros_like(parameter))
                parameter.sub_(mean.lerp(parameter.grad, 0.1).sign(), alpha=group["lr"])
                mean.lerp_(parameter.grad, 0.01)


def test_an_optimizer_that_makes_its_state_in_a_step_is_told():
    model, _ = pair(torch.float32)
    with pytest.raises(InputError, match="makes its state in the middle of a step"):
        nimble.compile_step(
            model,
            nn.functional.cross_entropy,
            Lion(model.parameters()),
            batches(1, torch.float32)[0],
        )
