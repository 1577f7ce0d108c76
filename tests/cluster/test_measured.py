"""The step-time model is the simulator's, finds what made the measurements, and says its errors."""

import json
from math import ceil

import numpy as np
import pytest
from shared_data import shared
from typer.testing import CliRunner

from nimble.cli.main import app
from nimble.cluster.buckets import FULL, evenly
from nimble.cluster.measured.gavel import fit_gavel, read_gavel
from nimble.cluster.measured.pollux import PARAMETERS, Steps, read_pollux
from nimble.cluster.measured.profiles import pollux_profiles
from nimble.cluster.measured.splits import judge
from nimble.cluster.measured.step_time import SIMULATED, Fabric, fit_fabric, step_times
from nimble.cluster.network import cost
from nimble.cluster.profile import Profile, read_profiles
from nimble.cluster.topology import grid
from nimble.errors import InputError

TRUE = Fabric(8e8, 3e-5, 0.45, 0.05, 0.15, 0.1, 1.6)
PLACEMENTS = ["1", "2", "4", "11", "12", "22", "44", "111", "124", "444", "1111", "2344", "4444"]
COMPUTE = {"bert": 0.45, "cifar10": 0.05, "deepspeech2": 0.5, "imagenet": 0.15, "ncf": 0.008,
           "yolov3": 0.3}  # fmt: skip


def columns(model, placements, batches, fabric):
    rows = [([int(digit) for digit in p], b) for p in placements for b in batches]
    machines = np.array([len(p) for p, _ in rows], float)
    gpus = np.array([sum(p) for p, _ in rows], float)
    crowd = np.array([max(p) for p, _ in rows], float)
    batch = np.array([b for _, b in rows], float)
    compute = COMPUTE[model] * batch / min(batches)
    nothing = np.zeros(len(rows))
    steps = Steps(model, 4 * PARAMETERS[model], machines, gpus, crowd, batch, compute,
                  nothing, nothing)  # fmt: skip
    step, sync = step_times(fabric, steps)
    alone = machines == 1
    return rows, np.where(alone, compute, step), np.where(alone, 0, sync)


def write_pollux(folder, fabric=TRUE, noise=0.0):
    rng = np.random.default_rng(0)
    for model in PARAMETERS:
        (folder / model).mkdir(parents=True)
        rows, step, sync = columns(model, PLACEMENTS, (8, 16, 32), fabric)
        step = step * np.exp(noise * rng.standard_normal(len(step)))
        lines = [f"{''.join(map(str, p))},{b},{t},{s}"
                 for (p, b), t, s in zip(rows, step, sync, strict=True)]  # fmt: skip
        text = "placement,local_bsz,step_time,sync_time\n" + "\n".join(lines) + "\n"
        (folder / model / "placements.csv").write_text(text)
        rows, step, sync = columns(model, ["2" * 6, "4" * 8], (8, 32), fabric)
        lines = [f"{len(p)},{sum(p)},{b},{t},{s}"
                 for (p, b), t, s in zip(rows, step, sync, strict=True)]  # fmt: skip
        text = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n" + "\n".join(lines) + "\n"
        (folder / model / "scalability.csv").write_text(text)
    return folder


def test_steps_across_machines_are_read_with_their_compute_alone(tmp_path):
    models = read_pollux(write_pollux(tmp_path))
    assert [model.model for model in models] == sorted(PARAMETERS)
    bert = models[0]
    assert len(bert) == 10 * 3 + 2 * 2
    assert bert.machines.min() == 2
    assert bert.bytes == 4 * 109_483_778
    assert set(bert.compute_s) == {0.45, 0.9, 1.8}
    assert bert.gpus.max() == 32


def test_the_fit_finds_the_fabric_that_made_the_measurements(tmp_path):
    models = read_pollux(write_pollux(tmp_path))
    found = fit_fabric(models)
    assert found.bandwidth == pytest.approx(TRUE.bandwidth, rel=0.02)
    assert found.overlap == pytest.approx(TRUE.overlap, abs=0.02)
    assert found.pair == pytest.approx(TRUE.pair, rel=0.03)
    assert found.crowding == pytest.approx(TRUE.crowding, abs=0.01)


def test_every_split_is_judged_and_beats_a_constant_slow_down(tmp_path):
    verdict = judge(read_pollux(write_pollux(tmp_path, noise=0.05)))
    assert len(verdict.splits) == 20
    assert all(len(split.fitted) == len(split.tested) == 3 for split in verdict.splits)
    assert verdict.error < 0.08 < verdict.simulated_error < verdict.constant_error
    assert verdict.worst[1] == max(verdict.by_model().values())


@pytest.mark.parametrize("machines", [2, 3, 8])
@pytest.mark.parametrize("model", ["imagenet", "ncf"])
def test_with_three_parameters_it_is_the_simulators_network_model(machines, model):
    fabric = Fabric(8e8, 3e-5, 0.3)
    one = np.ones(1)
    steps = Steps(model, 4 * PARAMETERS[model], machines * one, 4.0 * machines * one, 4 * one,
                  one, 0.2 * one, one, one)  # fmt: skip
    topology = grid(
        [machines, 4],
        bandwidth=[1e15, fabric.bandwidth],
        latency_s=[0.0, fabric.latency_s],
    )
    profile = Profile(model, 0.2, evenly(4 * PARAMETERS[model]), fabric.overlap)
    assert len(profile.buckets) == ceil(profile.bytes / FULL)
    placed = cost(topology, profile, tuple((machine, 4) for machine in range(machines)))
    step, exposed = step_times(fabric, steps)
    assert placed.iteration_s == pytest.approx(step[0])
    assert placed.exposed_s == pytest.approx(exposed[0])


def test_fewer_parameters_leave_the_others_without_effect(tmp_path):
    plain = fit_fabric(read_pollux(write_pollux(tmp_path)), SIMULATED)
    assert (plain.crowding, plain.sharing, plain.spread, plain.pair) == (0, 0, 0, 1)


def test_profiles_get_the_overlap_of_their_model(tmp_path):
    models = read_pollux(write_pollux(tmp_path))
    for profile in pollux_profiles(models, TRUE):
        name = profile.name.removeprefix("pollux_")
        assert profile.bytes == 4 * PARAMETERS[name]
        assert profile.compute_s == pytest.approx(2 * COMPUTE[name])
        assert profile.overlap == pytest.approx(TRUE.overlap, abs=0.02)


def test_measurements_that_are_not_there_or_broken(tmp_path):
    with pytest.raises(InputError, match=r"no placements\.csv of bert"):
        read_pollux(tmp_path)
    folder = write_pollux(tmp_path / "a")
    (folder / "ncf" / "placements.csv").write_text("placement,local_bsz\n1,2\n")
    with pytest.raises(InputError, match="no column step_time, sync_time"):
        read_pollux(folder)
    (folder / "ncf" / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n11,8,0.2,0.1\n"
    )
    with pytest.raises(InputError, match="no row of placement 1"):
        read_pollux(folder)
    (folder / "ncf" / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,8,0.2,0.1\n11,8,?,0.1\n"
    )
    with pytest.raises(InputError, match="row 3: could not convert"):
        read_pollux(folder)
    with pytest.raises(InputError, match="1 models measured"):
        judge(read_pollux(write_pollux(tmp_path / "b"))[:1])


def gavel_table(inside=6e9, across=9e8, overlap=0.4):
    """Rates as two bandwidths and one overlap make them, two GPU kinds, one impossible pair."""
    table = {"v100": {}, "v100_unconsolidated": {}, "k80": {}}
    for kind, size, compute in (("LM (batch size 5)", 55_950_712, 0.01),
                                ("ResNet-50 (batch size 16)", 102_228_128, 0.09)):  # fmt: skip
        for gpus in (1, 2, 4, 8):
            sent = size * 2 * (gpus - 1) / gpus
            for called, bandwidth in (("v100", inside), ("v100_unconsolidated", across)):
                step = compute + max(0, sent / bandwidth - overlap * compute)
                rates = {"null": gpus / step, f"('{kind}', 1)": [1.0, 1.0]}
                table[called][str((kind, gpus))] = rates
        table["k80"][str((kind, 1))] = {"null": 0.2 / compute}
    table["v100_unconsolidated"][str(("LM (batch size 5)", 8))]["null"] = 1e9
    table["v100"][str(("A3C", 1))] = {"null": 7.0}
    return table


def test_gavels_bandwidths_and_overlaps_are_found(tmp_path):
    (tmp_path / "rates.json").write_text(json.dumps(gavel_table()))
    measured, dropped = read_gavel(tmp_path / "rates.json")
    assert dropped == 1
    found = fit_gavel(measured, dropped)
    assert found.across == pytest.approx(9e8, rel=0.02)
    assert found.overlap["LM"] == pytest.approx(0.4, abs=0.03)
    assert found.error < 0.02
    profiles = {profile.name: profile for profile in found.profiles}
    assert profiles["A3C"].compute_s == pytest.approx(1 / 7, rel=1e-4)
    assert profiles["LM (batch size 5)"].speeds == (("k80", 0.2),)
    assert profiles["ResNet-50 (batch size 16)"].bytes == 102_228_128


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("{}", "no 'v100'"),
        ("""{"v100": {"('GPT', 1)": {"null": 3}}}""", "'GPT' is of no known model"),
    ],
)
def test_what_is_not_gavels_is_refused(tmp_path, text, said):
    (tmp_path / "rates.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_gavel(tmp_path / "rates.json")


def test_the_command_prints_errors_and_writes_profiles(tmp_path):
    write_pollux(tmp_path / "pollux", noise=0.05)
    (tmp_path / "rates.json").write_text(json.dumps(gavel_table()))
    result = CliRunner().invoke(
        app,
        ["cluster", "fit", "--pollux", str(tmp_path / "pollux"), "--gavel",
         str(tmp_path / "rates.json"), "--profiles", str(tmp_path / "out.json")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "in 20 of 20 splits" in result.output
    assert "worst model" in result.output
    assert "sync time" in result.output
    assert "1 pairs dropped" in result.output
    assert len(read_profiles(tmp_path / "out.json")) == 6 + 3


def test_the_command_wants_something_to_fit():
    result = CliRunner().invoke(app, ["cluster", "fit"])
    assert result.exit_code == 1
    assert "--pollux FOLDER" in result.output


@pytest.mark.full
def test_step_times_of_unseen_models_are_within_a_fifth():
    verdict = judge(read_pollux(shared("profiles/pollux")))
    assert len(verdict.splits) == 20
    assert verdict.error <= 0.20
    # The simulator's own formula is good enough, and better than a constant slow-down everywhere.
    assert verdict.simulated_error <= 0.20
    assert all(split.error < split.constant_error for split in verdict.splits)


@pytest.mark.full
def test_gavels_own_file_gives_26_profiles():
    found = fit_gavel(*read_gavel(shared("profiles/gavel_throughputs.json")))
    assert len(found.profiles) == 26
    assert found.error < 0.25
