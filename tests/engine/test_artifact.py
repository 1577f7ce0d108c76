"""Saved engines: the same bits back, and never a crash from a bad file."""

import contextlib
import copy
import dataclasses
import io
import json
import pickle
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import nimble
from nimble.artifact.layout import DIGESTS, PLAN
from nimble.capture.operators import find, why_not_pure
from nimble.errors import ArtifactError, InputError


@dataclasses.dataclass
class Result:
    score: torch.Tensor
    kind: str = "test"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x, scale=1.0):
        self.calls += 1
        return Result(self.norm(self.conv(x)).relu() * scale)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 3, 8, 8)
    engine = nimble.compile(model, (x,), {"scale": 2.0}, shapes=[1, 2])
    path = tmp_path_factory.mktemp("artifact") / "model.nimble"
    engine.save(path)
    return path, engine, x


def test_the_same_bits_come_back(saved):
    path, engine, x = saved
    loaded = nimble.load(path, types=[Result])
    for rows in (1, 2):
        mine, theirs = (
            e(x.expand(rows, -1, -1, -1).contiguous(), scale=2.0) for e in (loaded, engine)
        )
        assert type(mine) is Result
        assert mine.kind == "test"
        assert torch.equal(mine.score, theirs.score)


def test_classes_come_back_as_dicts_unless_given(saved):
    path, engine, x = saved
    got = nimble.load(path)(x, scale=2.0)
    assert torch.equal(got["score"], engine(x, scale=2.0).score)
    assert got["kind"] == "test"


def test_state_goes_on_from_where_it_was_saved(saved, tmp_path):
    _, engine, x = saved
    engine.save(tmp_path / "now.nimble")
    loaded = nimble.load(tmp_path / "now.nimble")
    before = loaded.plans[0].tensors["calls"].item()
    loaded(x, scale=2.0)
    assert loaded.plans[0].tensors["calls"].item() == before + 1


def test_loading_needs_no_model_source_and_takes_a_fraction_of_compiling(saved, tmp_path):
    path, engine, x = saved
    torch.save(x, tmp_path / "x.pt")
    code = (
        "import sys, torch, nimble; e = nimble.load(sys.argv[1]);"
        "print(e(torch.load(sys.argv[2]), scale=2.0)['score'].sum().item())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "x.pt")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) == pytest.approx(engine(x, scale=2.0).score.sum().item())


def test_weights_that_are_held_packed_only_are_saved_again(tmp_path):
    model, x = (
        nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).eval(),
        torch.randn(3, 64),
    )
    first, second = tmp_path / "first.nimble", tmp_path / "second.nimble"
    engine = nimble.compile(model, (x,))
    engine.save(first)
    loaded = nimble.load(first)
    assert "0.weight" in engine.plans[0].tensors
    assert "0.weight" not in loaded.plans[0].tensors
    loaded.save(second)
    assert torch.equal(nimble.load(second)(x), engine(x))
    loaded.save(first)
    assert torch.equal(nimble.load(first)(x), engine(x))
    first.unlink()
    loaded.save(second)
    assert torch.equal(nimble.load(second)(x), engine(x))


def test_a_weight_that_was_changed(saved, tmp_path):
    with zipfile.ZipFile(saved[0]) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    part = next(n for n in parts if "conv.weight" in n)
    parts[part] = parts[part][:-1] + b"?"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, held in parts.items():
            archive.writestr(name, held)
    refused(tmp_path, data.getvalue(), "conv.weight.* was changed")


def test_a_signature_that_was_not_saved_is_refused(saved):
    path, _, x = saved
    with pytest.raises(InputError, match="loaded from a file"):
        nimble.load(path)(x, scale=3.0)


def test_another_number_of_workers_is_scheduled_again(saved):
    path, engine, x = saved
    loaded = nimble.load(path, workers=3)
    assert torch.equal(loaded(x, scale=2.0)["score"], engine(x, scale=2.0).score)
    assert "scheduled again" in loaded.explain()


def test_objects_that_cannot_be_written_without_code(tmp_path):
    engine = nimble.compile(lambda x, how: x + 1, (torch.ones(1), len))
    with pytest.raises(ArtifactError, match="cannot be saved"):
        engine.save(tmp_path / "no.nimble")
    assert not list(tmp_path.iterdir())


# Bad files


def rewritten(path, change, *, honest=True):
    """The file with its plan changed; `honest` also makes the digests fit."""
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    body = json.loads(parts[PLAN])
    change(body)
    parts[PLAN] = json.dumps(body).encode()
    if honest:
        import hashlib

        parts[DIGESTS] = json.dumps(
            {n: hashlib.sha256(part).hexdigest() for n, part in parts.items() if n != DIGESTS}
        ).encode()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return data.getvalue()


def refused(tmp_path, data, match):
    bad = tmp_path / "bad.nimble"
    bad.write_bytes(data)
    with pytest.raises(ArtifactError, match=match):
        nimble.load(bad)


def test_truncated(saved, tmp_path):
    data = saved[0].read_bytes()
    for cut in (0, 1, 100, len(data) // 2, len(data) - 1):
        refused(tmp_path, data[:cut], "cut off")


def test_changed_without_new_digests(saved, tmp_path):
    refused(
        tmp_path, rewritten(saved[0], lambda b: b.update(name="x"), honest=False), "was changed"
    )


def test_newer_format(saved, tmp_path):
    refused(tmp_path, rewritten(saved[0], lambda b: b.update(format=99)), "format 99")


def test_an_operator_that_is_not_allowed(saved, tmp_path):
    def change(body):
        text = json.dumps(body).replace("aten.relu.default", "aten.from_file.default")
        body.update(json.loads(text))

    refused(tmp_path, rewritten(saved[0], change), "not allowed")


def test_a_schedule_with_a_race(saved, tmp_path):
    def change(body):
        plan = body["plans"][0]
        plan["streams"] = [list(reversed([t for s in plan["streams"] for t in s]))]
        plan["waits"] = []

    refused(tmp_path, rewritten(saved[0], change), "Proof")


def test_offsets_outside_of_the_arena(saved, tmp_path):
    def change(body):
        offsets = body["plans"][0]["offsets"]
        body["plans"][0]["offsets"] = [None if o is None else o + 10**9 for o in offsets]

    refused(tmp_path, rewritten(saved[0], change), None)


def leaves(data, path=()):
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, item in items:
        yield from leaves(item, (*path, key))
    if not isinstance(data, dict | list):
        yield path


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_one_value_changed_gives_a_clear_error_or_a_working_engine(saved, tmp_path, data):
    path, _, x = saved
    with zipfile.ZipFile(path) as archive:
        body = json.loads(archive.read(PLAN))
    where = data.draw(st.sampled_from(list(leaves(body))))
    value = data.draw(
        st.sampled_from([None, -1, 0, 1, 7, 2**40, 1.5, "x", [], {}, True, "aten.neg.default"])
    )

    def change(body):
        for key in where[:-1]:
            body = body[key]
        body[where[-1]] = value

    bad = tmp_path / "fuzzed.nimble"
    bad.write_bytes(rewritten(path, change))
    # A changed operator argument may pass every check and fail in its kernel, cleanly.
    with contextlib.suppress(nimble.NimbleError, RuntimeError, IndexError):
        nimble.load(bad)(x, scale=2.0)


class Busy(nn.Module):
    """Outputs of every kind: new, views, a state, the input, a view of it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, ids, x):
        self.calls.add_(1)
        y = self.conv(self.table(ids).transpose(1, 2)).transpose(1, 2) @ x
        best = y.softmax(-1).topk(2)
        return y.relu(), y[:, 1:], best.values, best.indices, self.calls * 2, self.calls, x, x[1:]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.full)])
def test_no_number_in_a_file_can_crash_the_process(step, tmp_path):
    inputs = [torch.randint(0, 9, (2, 5)), torch.randn(4, 4)]
    nimble.compile(Busy(), tuple(inputs)).save(tmp_path / "busy.nimble")
    torch.save(inputs, tmp_path / "inputs.pt")
    script = Path(__file__).with_name("tampering.py")
    start = random.randrange(step)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "busy.nimble", tmp_path / "inputs.pt",
         str(step), str(start)],
        capture_output=True, text=True,
    )  # fmt: skip
    tried = done.stdout.splitlines()
    assert done.returncode == 0, f"{tried[-1]}\n{done.stderr[-2000:]}"
    assert len(tried) > 3000 / step


def _plan_of(body):
    return body["plans"][0]


def test_an_output_that_nobody_is_handed(saved, tmp_path):
    def change(body):
        graph = _plan_of(body)["graph"]
        graph["outputs"] = graph["inputs"][:1]

    refused(tmp_path, rewritten(saved[0], change), "no output shows it")


def test_a_device_that_is_not_the_cpu(tmp_path):
    nimble.compile(lambda x: x + torch.rand(3), (torch.ones(3),)).save(tmp_path / "a.nimble")

    def change(body):
        text = json.dumps(body).replace('["device", "cpu"]', '["device", "meta"]')
        assert "meta" in text
        body.update(json.loads(text))

    refused(tmp_path, rewritten(tmp_path / "a.nimble", change), "asks for device 'meta'")


def test_an_update_of_something_else_than_it_says(saved, tmp_path):
    def change(body):
        graph = _plan_of(body)["graph"]
        update = next(t for t in graph["tasks"] if t[1] == "aten.copy_.default")
        update[2][0], update[2][1] = update[2][1], update[2][0]

    refused(tmp_path, rewritten(saved[0], change), "does not write what it says")


NOT_PURE = {
    "aten.from_file.default": "'filename'",
    "aten.relu_.default": "in place",
    "aten.view.default": "a view",
    "aten._local_scalar_dense.default": "other than tensors",
    "aten._print.default": "other than tensors",
    "aten.set.source_Storage": "'source'",
    "aten.add.out": "in place",
    "prims.sin.default": "PyTorch's own",
}


@pytest.mark.parametrize("op", NOT_PURE)
def test_only_pure_kernels_are_allowed(op):
    assert NOT_PURE[op] in why_not_pure(find(op))


@pytest.mark.parametrize(
    "op", ["aten.add.Tensor", "aten.copy_.default", "aten.gelu.default", "aten.rand.default"]
)
def test_pure_kernels_are_allowed(op):
    assert why_not_pure(find(op)) is None


def test_padding_is_kept(tmp_path):
    model = nn.Linear(4, 4)
    engine = nimble.compile(model, (torch.randn(4, 4),), shapes=[2, 4], pad="batch")
    engine.save(tmp_path / "padded.nimble")
    loaded = nimble.load(tmp_path / "padded.nimble")
    for rows in (0, 1, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(loaded(x), model(x).detach())


@dataclasses.dataclass
class Batch:
    x: torch.Tensor


def test_arguments_of_a_class_ask_for_it(tmp_path):
    def model(batch):
        return batch.x + 1

    x = torch.ones(2)
    nimble.compile(model, (Batch(x),)).save(tmp_path / "typed.nimble")
    with pytest.raises(InputError, match=r"types=\[TheClass\]"):
        nimble.load(tmp_path / "typed.nimble")(Batch(x))
    assert nimble.load(tmp_path / "typed.nimble", types=[Batch])(Batch(x)).tolist() == [2, 2]


def test_loading_with_no_workers_is_refused(saved):
    with pytest.raises(InputError, match="workers=0"):
        nimble.load(saved[0], workers=0)


def test_an_engine_is_saved_and_not_pickled(saved):
    for copying in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"engine\.save"):
            copying(saved[1])


def test_what_pytorch_returns_under_names_keeps_them(tmp_path):
    def model(x):
        return {"best": x.topk(2), "most": x.max(0)}

    x = torch.randn(5)
    nimble.compile(model, (x,)).save(tmp_path / "named.nimble")
    got = nimble.load(tmp_path / "named.nimble")(x)
    assert type(got["best"]) is torch.return_types.topk
    assert torch.equal(got["best"].indices, model(x)["best"].indices)
    assert torch.equal(got["most"].values, model(x)["most"].values)


def test_a_class_of_pytorchs_with_other_fields(tmp_path):
    nimble.compile(lambda x: x.topk(2), (torch.randn(5),)).save(tmp_path / "named.nimble")

    def change(body):
        body["plans"][0]["output"]["class"] = "torch.return_types.lu_unpack"

    refused(tmp_path, rewritten(tmp_path / "named.nimble", change), "3-sequence")
