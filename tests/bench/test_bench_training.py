"""Whole training steps as contestants."""

import json

import pytest
import torch
from typer.testing import CliRunner

from nimble.bench.contestants import MissingError, contestant
from nimble.bench.limits import Peaks
from nimble.bench.training import Training, make, named
from nimble.cli.main import app
from nimble.errors import InputError


def test_steps_are_timed_after_two_of_them_were_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(Peaks, "measure", lambda threads, folder: Peaks(threads, 1e11, {1: 1e10}))
    out = tmp_path / "out.json"
    done = CliRunner().invoke(
        app,
        ["bench", "--models", "mlp@16x4", "--train", "adamw", "--against", "eager,onnxruntime",
         "--threads", "1", "--rounds", "3", "--json", str(out)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = {row["contestant"]: row for row in json.loads(out.read_text())["rows"]}
    assert {row["model"] for row in rows.values()} == {"mlp@16x4 with adamw"}
    assert rows["nimble"]["ok"]
    assert rows["eager"]["ok"]
    assert rows["eager"]["error"] < 1e-3
    assert rows["onnxruntime"]["reason"] == "it does not train"


def test_a_step_that_does_not_update_is_found_out():
    made = make("mlp@16x4 with sgd")
    batch = [tensor.clone() for tensor in made.args]
    honest = contestant("eager", True)(made.model, made.args, {}, 1)
    made.model.optimizer = lambda: torch.optim.SGD(made.model.network.parameters(), lr=0.0)
    lazy = contestant("eager", True)(made.model, made.args, {}, 1)
    assert honest.trial(batch)[1] != 0
    assert lazy.trial(batch)[1] == 0


def test_a_trial_begins_with_an_optimizer_that_has_taken_no_step():
    made = make("mlp@16x4 with adam")
    batch = [tensor.clone() for tensor in made.args]
    weights = {k: v.clone() for k, v in made.model.state_dict().items()}
    run = contestant("nimble", True)(made.model, made.args, {}, 1)
    answers = []
    for _ in range(2):
        made.model.load_state_dict(weights)
        answers.append([float(x) for x in run.trial(batch)])
        run(batch)
    assert answers[0] == answers[1]
    made.model.load_state_dict(weights)
    expected = [float(x) for x in made.model(*batch)]
    assert answers[0] == pytest.approx(expected, rel=1e-3)


def test_what_cannot_be_trained_is_told(tmp_path):
    with pytest.raises(InputError, match="--train lion: expected one of sgd, adam, adamw"):
        named("mlp", "lion")
    with pytest.raises(MissingError, match="does not train"):
        contestant("openvino", True)
    file = tmp_path / "model.py"
    file.write_text("def function():\n    return (lambda x: x), (1,)\n")
    with pytest.raises(InputError, match="only a module"):
        make(f"{file}:function with sgd")
    assert isinstance(make("mlp@16x4 with sgd").model, Training)
