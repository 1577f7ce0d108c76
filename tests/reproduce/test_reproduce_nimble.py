"""`nimble reproduce nimble`: published measurements, predicted by models that did not see them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from nimble.cli.main import app
from nimble.devices.sim import default_constants, find_host, published_error
from nimble.devices.sim.work import Kind
from nimble.foresee import capture_call
from nimble.reproduce.fit import PRIORS, fit
from nimble.reproduce.model import Model, Predictor, crowd_ns
from nimble.reproduce.networks import capture_training, fused, in_sequence
from nimble.reproduce.published import CROWD, INFERENCE, TRAINING
from nimble.reproduce.rows import SPEEDUP, STEP, Row, Tables, stored_model

runner = CliRunner()


def test_a_sequence_is_as_slow_as_its_kernels_or_its_host():
    assert in_sequence([0, 0, 0], np.array([1.0, 2.0, 3.0])) == 6
    assert in_sequence([10, 20, 30], np.array([1.0, 2.0, 3.0])) == 33
    assert in_sequence([0, 20, 20], np.array([15.0, 1.0, 3.0])) == 24
    assert in_sequence([], np.array([])) == 0


def test_pointwise_chains_are_one_kernel_for_the_papers_system():
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(torch.relu(self.convolution(x)) + 1)

    graph = capture_call(Chain(), (torch.randn(1, 4, 8, 8),), {}, "chain").eager
    work = fused(graph)
    assert work.kind.tolist() == [Kind.MATRIX, Kind.MOVE]
    # The chain reads the convolution's result and writes its own, and nothing between.
    assert work.bytes[1] == 2 * 4 * 64 * 4


def test_a_training_step_is_captured_without_its_update():
    found = capture_training("mobilenet_v2@32x2")
    parameters = 158
    assert len(found.updates) == 5 * parameters
    assert not any("momentum" in task.name for task in found.graph.tasks)
    assert found.work.tasks < found.eager.tasks
    predictor = Predictor({"step": found})
    model = stored_model()
    eager = predictor.eager_ns("step", "v100", model)
    assert predictor.training_ns("step", "v100", model) < eager
    # The optimizer is called by PyTorch in both: that part is not gained.
    assert (
        predictor.training_ns("step", "v100", model) > 4 * parameters * model.host.update_us * 1e3
    )


def test_many_convolutions_at_once_take_as_long_as_published():
    constants = default_constants()
    alone = crowd_ns(1, constants)
    for crowd in CROWD:
        found = crowd_ns(crowd.streams, constants) / alone
        assert found == pytest.approx(crowd.ms / CROWD[0].ms, rel=0.4)


def test_the_cells_are_all_there():
    assert len(INFERENCE) == 8
    assert len(TRAINING) == 9
    assert set(PRIORS) == {
        *default_constants().__dataclass_fields__,
        *(name for name in find_host("paper").__dataclass_fields__ if name != "name"),
    }


def test_medians_and_worst_rows_are_of_those_held_out():
    rows = (
        Row("a", SPEEDUP, 10.0, 11.0, True),
        Row("b", STEP, 10.0, 7.0, True),
        Row("c", STEP, 10.0, 12.0, True),
        Row("a", SPEEDUP, 10.0, 10.0, False),
        Row("d", "PyTorch", 1.0, 9.0, True),
    )
    tables = Tables(rows, {})
    assert tables.median(True) == pytest.approx(0.2)
    assert tables.median(False) == 0
    assert tables.worst().network == "b"


@pytest.mark.full
def test_unseen_networks_are_predicted_within_20_percent(tmp_path: Path):
    file = tmp_path / "rows.json"
    result = runner.invoke(
        app, ["reproduce", "nimble", "--json", str(file), "--figures", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())["rows"]
    assert set(rows[0]) == {"network", "metric", "published", "predicted", "held_out"}
    cells = [r for r in rows if r["held_out"] and r["metric"] in (SPEEDUP, STEP)]
    assert len(cells) == 17
    errors = [abs(r["predicted"] / r["published"] - 1) for r in cells]
    assert statistics.median(errors) <= 0.2
    start = "several streams / one stream (snuspl"
    ratios = [r for r in rows if r["metric"].startswith(start)]
    assert len(ratios) == 8, (
        "four cases, each predicted by a model that saw it and one that did not"
    )
    assert all(abs(r["predicted"] - r["published"]) <= 0.05 for r in ratios)
    # What comes with Nimble is what this fit finds.
    error = published_error()
    assert error.median == pytest.approx(statistics.median(errors), abs=0.01)
    assert error.worst == pytest.approx(max(errors), abs=0.02)
    assert sorted(p.name for p in tmp_path.glob("*.svg")) == [
        "gpu-errors.svg", "gpu-inference.svg", "gpu-training.svg",
    ]  # fmt: skip


def test_a_fit_finds_the_constants_behind_the_figures(monkeypatch: pytest.MonkeyPatch):
    """Published figures are replaced by those of a known model, and the fit must find it again."""
    from dataclasses import replace

    from nimble.reproduce import fit as module

    step = capture_training("mobilenet_v2@32x2")
    predictor = Predictor({"net@32x2": step})
    truth = {name: prior.value for name, prior in PRIORS.items()} | {"backward_us": 40.0}
    made = predictor.training_speedup("net@32x2", Model.of(truth, "truth"))
    cell = replace(TRAINING[0], network="net", batch=2, nimble=made)
    monkeypatch.setattr(module, "INFERENCE", ())
    monkeypatch.setattr(module, "TRAINING", (cell,))
    monkeypatch.setattr(module, "CROWD", ())
    monkeypatch.setattr(module, "NO_HELP", ())
    found = fit(predictor)
    fitted = predictor.training_speedup("net@32x2", Model.of(found, "found"))
    assert fitted == pytest.approx(made, rel=0.05)
    assert found["backward_us"] > PRIORS["backward_us"].value


def test_progress_is_said_line_by_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    from nimble.cli import reproduce as module

    monkeypatch.setattr(module, "networks", lambda: iter([("a", lambda: 1), ("b", lambda: 2)]))

    def tables(captured: dict[str, int], report):  # type: ignore[no-untyped-def]
        assert captured == {"a": 1, "b": 2}
        report("fitting without a")
        return Tables(
            (Row("a", SPEEDUP, 10.0, 11.0, True), Row("a", SPEEDUP, 10.0, 10.0, False)), {}
        )

    monkeypatch.setattr(module, "tables", tables)
    result = runner.invoke(app, ["reproduce", "nimble"])
    assert result.exit_code == 0, result.output
    said = result.stderr.splitlines()
    assert said == ["capturing a (1 of 2)", "capturing b (2 of 2)", "fitting without a"]
