"""`nimble reproduce dally`: paired differences, stated parameters, all scenes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nimble.cli import reproduce_dally
from nimble.cli.main import app
from nimble.cluster.reproduce import SCENES, Parameters, Scene, difference, reproduce


def test_a_paired_difference_has_an_interval_and_says_whether_it_is_clear():
    better = difference([1.0, 1.1, 0.9], [2.0, 2.2, 1.7])
    assert better.low < better.less < better.high
    assert better.clear
    assert better.less > 0.4
    assert not difference([1.0, 2.0], [2.0, 1.0]).clear


def test_every_arrival_network_and_contention_is_a_scene():
    assert len(SCENES) == len({scene.words for scene in SCENES}) == 12


def test_the_same_jobs_give_the_same_figures_and_json_holds_them():
    small = Parameters(shape=(2, 2, 8), jobs=40)
    scenes = [Scene("batch", True, True)]
    first, again = (reproduce(2, small, ["fifo", "dally+"], scenes, workers=1) for _ in range(2))
    assert first == again
    assert json.loads(json.dumps(first, allow_nan=False))["parameters"]["jobs"] == 40
    less = first["scenes"][0]["dally_takes_less"]
    assert set(less) == {"fifo", "dally+"}
    assert set(less["fifo"]) >= {"makespan_s", "comm_s"}


def test_the_command_prints_losses_as_losses(monkeypatch, tmp_path):
    small = Parameters(shape=(2, 2, 8), jobs=40)
    scenes = [Scene("batch", True, True)]

    def quick(seeds, workers, on_done):
        made = reproduce(seeds, small, ["dally+", "srtf"], scenes, workers=1, on_done=on_done)
        less = made["scenes"][0]["dally_takes_less"]["dally+"]["comm_s"]
        less.update(less=-0.2, low=-0.3, high=-0.1)
        return made

    monkeypatch.setattr(reproduce_dally, "reproduce", quick)
    file = tmp_path / "out.json"
    args = ["reproduce", "dally", "--seeds", "2", "--cases", "2", "--json", str(file)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert "+20.0% [+10.0%, +30.0%] LOSS" in result.output
    assert "oversubscribed 8:1" in " ".join(result.output.split())
    assert "knowing the work left beforehand" in result.output
    assert json.loads(file.read_text())["gap_to_optimum"]["dally+"]["median"] >= 0


@pytest.mark.full
@pytest.mark.parametrize("arrivals", ["batch", "light", "heavy"])
def test_dally_communicates_least_and_dally_plus_is_faster_when_congested(arrivals):
    scenes = [Scene(arrivals, True, contention) for contention in (False, True)]
    rivals = ["fifo", "tiresias", "tiresias-released", "gandiva", "gandiva-released"]
    for scene in reproduce(10, policies=[*rivals, "dally+"], scenes=scenes, workers=1)["scenes"]:
        less = scene["dally_takes_less"]
        assert all(less[name]["comm_s"]["low"] > 0 for name in rivals)
        # In the light one nobody waits long: no policy at all can take 5 % off.
        means = scene["means"]
        best = means["alone"]["mean_jct_s"] / means["dally"]["mean_jct_s"]
        plus = scene["dally_plus_takes_less"]
        assert plus["mean_jct_s"]["low"] > 0
        assert plus["mean_jct_s"]["less"] >= min(0.05, (1 - best) / 2)
        assert plus["p99_jct_s"]["less"] >= -0.03
