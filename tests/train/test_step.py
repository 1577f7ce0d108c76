"""A compiled step against the same loop in eager."""

import copy

import pytest
import torch
from steps import OPTIMIZERS, assert_same, assert_same_state, batches, eager_step, pair
from torch import nn

import nimble
from nimble.errors import CaptureError, InputError


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_twenty_steps_follow_eager(kind):
    mine, theirs = pair()
    optimizer, reference = (
        OPTIMIZERS[kind](mine.parameters()),
        OPTIMIZERS[kind](theirs.parameters()),
    )
    data = batches(20)
    step = nimble.compile_step(mine, nn.functional.cross_entropy, optimizer, data[0])
    assert_same(mine, theirs)  # Nothing has happened yet.
    for x, y in data:
        loss = step(x, y)
        expected = eager_step(theirs, reference, x, y)
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
        assert not loss.requires_grad
    assert_same(mine, theirs)
    assert_same_state(optimizer, reference)
    assert all(p.grad is None for p in mine.parameters())


def test_norms_that_average_all_batches():
    mine, theirs = pair()
    for model in (mine, theirs):
        model.norm.momentum = None
    optimizer, reference = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs))
    data = batches(20)
    step = nimble.compile_step(mine, nn.functional.cross_entropy, optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert mine.norm.num_batches_tracked == 20
    assert_same(mine, theirs)
    assert len(step.engines) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, 12),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False),
    ],
)
@pytest.mark.parametrize("kind", ["momentum", "adamw"])
@pytest.mark.filterwarnings("error")
def test_schedulers_change_what_they_like(kind, make):
    mine, theirs = pair()
    optimizer, reference = (
        OPTIMIZERS[kind](mine.parameters()),
        OPTIMIZERS[kind](theirs.parameters()),
    )
    schedulers = make(optimizer), make(reference)
    data = batches(8)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
        for scheduler in schedulers:
            scheduler.step()
    assert_same(mine, theirs)
    assert len(step.engines) == 1


@pytest.mark.parametrize(
    ("options", "clip"),
    [
        ({"clip_norm": 0.1}, lambda ps: nn.utils.clip_grad_norm_(ps, 0.1)),
        ({"clip_norm": 1e6}, lambda ps: nn.utils.clip_grad_norm_(ps, 1e6)),
        ({"clip_value": 0.01}, lambda ps: nn.utils.clip_grad_value_(ps, 0.01)),
    ],
)
def test_clipping(options, clip):
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs))
    data = batches(3)
    step = nimble.compile_step(
        mine, nn.CrossEntropyLoss(), optimizer, data[0], keep_grads=True, **options
    )
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y, clip=clip)
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if q.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-9)
    assert_same(mine, theirs)


@pytest.mark.parametrize("workers", [1, 2])
def test_dropout_draws_what_eager_draws(workers):
    mine, theirs = pair(dropout=0.4)
    optimizer, reference = (OPTIMIZERS["sgd"](m.parameters()) for m in (mine, theirs))
    data = batches(5)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0], workers=workers)
    torch.manual_seed(5)
    losses = [step(x, y) for x, y in data]
    left = torch.get_rng_state()
    torch.manual_seed(5)
    expected = [eager_step(theirs, reference, x, y) for x, y in data]
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(left, torch.get_rng_state())
    same = [step(*data[0]) for _ in range(2)]
    assert same[0] != same[1]


def test_dropout_of_channels_last_draws_what_eager_draws():
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Conv2d(6, 8, 1), nn.Dropout(0.4), nn.Flatten(), nn.Linear(128, 2))
    mine.to(memory_format=torch.channels_last)
    theirs = copy.deepcopy(mine)
    optimizer, reference = (OPTIMIZERS["sgd"](m.parameters()) for m in (mine, theirs))
    x, y = torch.randn(3, 6, 4, 4), torch.randn(3, 2)
    x = x.contiguous(memory_format=torch.channels_last)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y))
    torch.manual_seed(2)
    losses = [step(x, y) for _ in range(3)]
    torch.manual_seed(2)
    expected = [eager_step(theirs, reference, x, y, nn.MSELoss()) for _ in range(3)]
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_autocast(kind):
    """Eager rounds to bfloat16 where we do not, and the other way round: both are as far from the
    exact loss."""
    mine, theirs = pair(torch.float32)
    exact = copy.deepcopy(theirs).double()
    optimizers = [OPTIMIZERS[kind](m.parameters()) for m in (mine, theirs, exact)]
    data = batches(8, torch.float32)
    loss_fn = nn.CrossEntropyLoss()
    step = nimble.compile_step(mine, loss_fn, optimizers[0], data[0], autocast=torch.bfloat16)

    off: list[float] = []
    for x, y in data:
        loss = step(x, y)
        assert loss.dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = loss_fn(theirs(x), y)
        optimizers[1].zero_grad()
        expected.backward()
        optimizers[1].step()
        right = eager_step(exact, optimizers[2], x.double(), y)
        off.append(abs(loss.item() - right.item()) - 2 * abs(expected.item() - right.item()))
    assert max(off) < 2e-3
    assert all(p.dtype == torch.float32 for p in mine.parameters())


def test_another_batch_size_gets_a_plan_of_its_own():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs))
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, batches(1)[0])
    for x, y in [*batches(2), *batches(1, size=3), *batches(1)]:
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert len(step.engines[0].plans) == 2


@pytest.mark.parametrize("kind", ["momentum", "dampened", "adamw"])
def test_stop_save_load_and_go_on_in_eager_and_back(kind, tmp_path):
    mine, theirs = pair()
    optimizer, reference = (
        OPTIMIZERS[kind](mine.parameters()),
        OPTIMIZERS[kind](theirs.parameters()),
    )
    data = batches(9)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data[:3]:
        step(x, y)
    torch.save([mine.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
    resumed, _ = pair()
    other = OPTIMIZERS[kind](resumed.parameters())
    for held, saved in zip((resumed, other), torch.load(tmp_path / "checkpoint.pt"), strict=True):
        held.load_state_dict(saved)
    for x, y in data[3:6]:
        eager_step(mine, optimizer, x, y)
        eager_step(resumed, other, x, y)
    again = nimble.compile_step(resumed, nn.CrossEntropyLoss(), other, data[0])
    for x, y in data[6:]:
        step(x, y)
        again(x, y)
    for x, y in data:
        eager_step(theirs, reference, x, y)
    for model in (mine, resumed):
        assert_same(model, theirs)
    for one in (optimizer, other):
        assert_same_state(one, reference)


def test_state_loaded_between_steps_is_used():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["adam"](m.parameters()) for m in (mine, theirs))
    data = batches(6)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    kept = None
    for number, (x, y) in enumerate(data):
        step(x, y)
        eager_step(theirs, reference, x, y)
        if number == 1:
            kept = copy.deepcopy([theirs.state_dict(), reference.state_dict()])
        if number == 3:
            for model, one in ((mine, optimizer), (theirs, reference)):
                model.load_state_dict(kept[0])
                one.load_state_dict(copy.deepcopy(kept[1]))
    assert_same(mine, theirs)
    assert_same_state(optimizer, reference)


def test_a_parameter_frozen_and_thawed_halfway():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, theirs))
    data = batches(6)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        for model in (mine, theirs):
            model.first.weight.requires_grad_(not 2 <= number < 4)
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_parameters_resized_halfway(kind):
    """Works where it does in eager: where the optimizer has no state of the old size."""
    models = [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizer, reference = (OPTIMIZERS[kind](m.parameters()) for m in models)
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    step = nimble.compile_step(models[0], nn.MSELoss(), optimizer, (x, y))
    step(x, y)
    eager_step(models[1], reference, x, y, nn.functional.mse_loss)
    for model in models:
        model[0].weight.data = torch.ones(9, 4)
        model[0].bias.data = torch.ones(9)
        model[2].weight.data = torch.ones(2, 9)
    if kind != "sgd":
        with pytest.raises(InputError, match=r"'0.weight' is of shape \(9, 4\), and .* delete its"):
            step(x, y)
        for one in (optimizer, reference):
            one.state.clear()
    for _ in range(2):
        step(x, y)
        eager_step(models[1], reference, x, y, nn.functional.mse_loss)
    assert_same(*models, 1e-5)


def test_groups_with_numbers_of_their_own():
    mine, theirs = pair()

    def grouped(model):
        few, rest = (
            [model.last.weight, model.norm.weight],
            [model.first.weight, *model.left.parameters()],
        )
        return torch.optim.AdamW(
            [
                {"params": few, "lr": 0.1, "weight_decay": 0.0},
                {"params": rest, "betas": (0.8, 0.9)},
            ],
            lr=1e-2,
        )

    optimizer, reference = grouped(mine), grouped(theirs)
    data = batches(6)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for number, (x, y) in enumerate(data):
        for one, model in ((optimizer, mine), (reference, theirs)):
            if number == 2:
                one.add_param_group({"params": [model.last.bias], "lr": 0.5})
            if number == 3:
                one.param_groups[0]["weight_decay"] = 0.1
            if number == 4:
                one.param_groups[1]["lr"] = 0.3
        step(x, y)
        eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert_same_state(optimizer, reference)


def test_losses_with_company():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["sgd"](m.parameters()) for m in (mine, theirs))
    x, y = batches(1)[0]

    def loss_fn(output, target):
        loss = nn.functional.cross_entropy(output, target)
        return loss, (output.argmax(1) == target).sum(), output

    _, right, output = nimble.compile_step(mine, loss_fn, optimizer, (x, y))(x, y)
    expected = copy.deepcopy(theirs)(x)
    torch.testing.assert_close(output, expected.detach())
    assert right == (expected.argmax(1) == y).sum()
    eager_step(theirs, reference, x, y)
    assert_same(mine, theirs)
    assert not output.requires_grad


def test_a_model_that_computes_its_loss():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 1)

        def forward(self, x, labels=None):
            output = self.net(x)
            return {"loss": ((output - labels) ** 2).mean(), "logits": output}

    torch.manual_seed(0)
    mine = Inside()
    theirs = copy.deepcopy(mine)
    optimizer, reference = (torch.optim.SGD(m.parameters(), 0.1) for m in (mine, theirs))
    batch = {"x": torch.randn(4, 3), "labels": torch.randn(4, 1)}
    step = nimble.compile_step(mine, None, optimizer, batch)
    for _ in range(3):
        loss = step(**batch)
        expected = theirs(**batch)["loss"]
        reference.zero_grad()
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach())
    assert_same(mine, theirs, 1e-6)


def test_an_engine_of_the_model_sees_every_step():
    mine, _ = pair(torch.float32)
    optimizer = OPTIMIZERS["sgd"](mine.parameters())
    x, y = batches(1, torch.float32)[0]
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, (x, y))
    mine.eval()
    engine = nimble.compile(mine, (x,))
    for _ in range(3):
        mine.train()
        step(x, y)
        mine.eval()
        torch.testing.assert_close(engine(x), mine(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_that_becomes_nan_is_the_users_to_see(dtype, clip):
    mine, theirs = pair(dtype)
    optimizer, reference = (OPTIMIZERS["adam"](m.parameters()) for m in (mine, theirs))
    x, y = batches(1, dtype)[0]
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, (x, y), clip_norm=clip)
    bad = x.clone()
    bad[0, 0, 0, 0] = float("nan")
    assert step(bad, y).isnan()
    eager_step(
        theirs, reference, bad, y,
        clip=clip and (lambda parameters: nn.utils.clip_grad_norm_(parameters, clip)),
    )  # fmt: skip
    state = mine.state_dict()
    for name, other in theirs.state_dict().items():
        assert torch.equal(state[name].isnan(), other.isnan()), name


def test_what_cannot_be_a_step_is_told():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(3, 2), torch.randn(3, 2)
    with pytest.raises(CaptureError, match=r"the loss is torch.float32 of shape \(3, 2\)"):
        nimble.compile_step(model, lambda a, b: a - b, optimizer, (x, y))
    with pytest.raises(CaptureError, match="depends on no parameter"):
        nimble.compile_step(model, lambda a, b: b.sum(), optimizer, (x, y))
    with pytest.raises(CaptureError, match=r"return the tensor, without .item\(\)"):
        nimble.compile_step(model, lambda a, b: (a - b).sum().item(), optimizer, (x, y))
    with pytest.raises(CaptureError, match="no loss in the str"):
        nimble.compile_step(model, lambda a, b: "loss", optimizer, (x, y))
    with pytest.raises(InputError, match="no parameter of the model"):
        nimble.compile_step(nn.Linear(2, 2), nn.MSELoss(), optimizer, (x, y))
    with pytest.raises(InputError, match="example is a Tensor"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, x)
    with pytest.raises(InputError, match="choose one"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, (x, y), clip_norm=1.0, clip_value=1.0)
    with pytest.raises(InputError, match="accumulate=0"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, (x, y), accumulate=0)
    with pytest.raises(InputError, match="rng='fast'"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, (x, y), rng="fast")
    with pytest.raises(InputError, match=r"optimizer is a list; .* several groups"):
        nimble.compile_step(model, nn.MSELoss(), [optimizer], (x, y))
    words = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    with pytest.raises(InputError, match="'0' is an Embedding with sparse=True"):
        nimble.compile_step(words, nn.MSELoss(), optimizer, (x.long(), y))
    with pytest.raises(InputError, match="nothing is left for the model"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, ({"input": x, "target": y},))


def test_an_empty_batch_is_told_to_be_the_tracers():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    empty = torch.randn(0, 2)
    with pytest.raises(CaptureError, match=r"PyTorch's tracer divided by zero at .*empty batch"):
        nimble.compile_step(model, nn.MSELoss(), optimizer, (empty, empty))


@pytest.mark.parametrize("options", [{"keep_grads": True}, {"accumulate": 2}])
def test_a_parameter_without_elements(options):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Linear(8, 6)
            self.more = nn.Parameter(torch.empty(0, 8))

        def forward(self, x):
            return self.words(x) @ torch.cat([self.words.weight, self.more])

    torch.manual_seed(0)
    mine = Tied()
    other = copy.deepcopy(mine)
    optimizer, theirs = (OPTIMIZERS["momentum"](m.parameters()) for m in (mine, other))
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    step = nimble.compile_step(mine, nn.MSELoss(), optimizer, (x, y), **options)
    for _ in range(3):
        for _ in range(options.get("accumulate", 1)):
            step(x, y)
        eager_step(other, theirs, x, y, nn.MSELoss())
    assert_same(mine, other, 1e-5)
    if options.get("keep_grads"):
        assert mine.more.grad.shape == (0, 8)


def test_hooks_after_a_step_are_called():
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS["adam"](m.parameters()) for m in (mine, theirs))
    averages = [copy.deepcopy(m.last.weight).detach() for m in (mine, theirs)]
    for one, model, average in zip((optimizer, reference), (mine, theirs), averages, strict=True):
        one.register_step_post_hook(lambda *_, a=average, m=model: a.lerp_(m.last.weight, 0.1))
    data = batches(3)
    step = nimble.compile_step(mine, nn.CrossEntropyLoss(), optimizer, data[0])
    for x, y in data:
        step(x, y)
        eager_step(theirs, reference, x, y)
    torch.testing.assert_close(*(a.detach() for a in averages), rtol=1e-9, atol=1e-9)


def test_hooks_that_would_see_gradients_are_refused():
    model, _ = pair()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    x, y = batches(1)[0]
    step = nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y))
    for register, message in (
        (model.last.weight.register_hook, "'last.weight' has a hook on its gradient"),
        (model.norm.register_full_backward_hook, "module 'norm' has a hook on gradients"),
        (optimizer.register_step_pre_hook, "a hook that runs before its step"),
    ):
        hook = register(lambda *_: None)
        with pytest.raises(InputError, match=message):
            step(x, y)
        hook.remove()
    step(x, y)


def test_nothing_is_trained_in_inference_mode():
    model, _ = pair()
    x, y = batches(1)[0]
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    step = nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y))
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        step(x, y)


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish", "hardtanh", "elu", "gelu", "silu"])
def test_gradients_of_activations_are_eagers(name):
    """In double precision, whatever the constants of PyTorch's kernels are."""
    torch.manual_seed(0)
    mine = nn.Linear(6, 8).double()
    theirs = copy.deepcopy(mine)
    optimizer, reference = (torch.optim.SGD(m.parameters(), 0.1) for m in (mine, theirs))
    x, y = torch.randn(64, 6).double(), torch.randn(64, 8).double()
    activation = getattr(nn.functional, name)

    def loss_fn(output, target):
        return nn.functional.mse_loss(activation(3 * output), target)

    nimble.compile_step(mine, loss_fn, optimizer, (x, y))(x, y)
    eager_step(theirs, reference, x, y, loss_fn)
    assert_same(mine, theirs, 1e-14)


@pytest.mark.parametrize("kind", ["native", "aten"])
def test_to_measure_a_step_trains_nothing(kind):
    """Neither what native kernels write nor, in double precision, what ATen does."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    ).train()
    model = model.double() if kind == "aten" else model
    x, y = torch.randn(4, 3, 8, 8, dtype=model[0].weight.dtype), torch.randint(0, 4, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def held():
        state = (value["momentum_buffer"] for value in optimizer.state.values())
        return [tensor.clone() for tensor in (*model.state_dict().values(), *state)]

    begin = held()
    step = nimble.compile_step(model, nn.CrossEntropyLoss(), optimizer, (x, y), workers=2)
    assert all(map(torch.equal, begin, held()))
    step(x, y)
    after = held()
    assert not all(map(torch.equal, begin, after))
    step.engines[0].timeline()
    assert all(map(torch.equal, after, held()))
