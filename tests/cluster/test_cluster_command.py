"""`nimble cluster`, as a user runs it."""

import json
import os
import subprocess
import sys

import pytest
from as_a_user import SMALL, cluster, figures

from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.fifo import Fifo


def without_run(found):
    if isinstance(found, dict):
        return {name: without_run(value) for name, value in found.items() if name != "run"}
    return [without_run(value) for value in found] if isinstance(found, list) else found


def test_simulate_writes_figures_and_a_page(tmp_path):
    result = cluster("simulate", *SMALL, "--policy", "fifo", "--json", tmp_path / "out.json",
                     "--html", tmp_path / "out.html", "--story", 7)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "40 of 40 jobs finished" in result.output
    assert "finished after" in result.output
    found = figures(tmp_path / "out.json")
    assert {"jobs", "makespan_s", "mean_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s",
            "queueing_s", "comm_share", "utilisation", "placements", "preemptions", "peak_queue",
            "shared_link_s", "run"} <= found.keys()  # fmt: skip
    assert {"wall_s", "jobs_per_s", "events_per_s", "peak_mb"} == found["run"].keys()
    assert found["setup"]["seed"] == 3
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")


def test_a_trace_is_read_and_what_was_bad_in_it_is_said(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,duration_s\n0,1,60\n10,4,90\n20,2,30\nsoon,1,1\n")
    result = cluster("simulate", "--trace", trace, "--cluster", "1x4", "--policy", "fifo",
                     "--json", tmp_path / "out.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "row 5" in result.output
    found = figures(tmp_path / "out.json")
    assert found["jobs"] == 3
    # The second waits for the first, the third goes by the second: it is smaller and fits.
    assert found["queueing_s"] == pytest.approx(50 / 3, rel=0.02)


def test_a_row_of_an_unknown_model_is_a_bad_row(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "submit_s,gpus,iterations,model\n0,1,30,resnet50\n1,1,30,gpt9\n2,x,30,vgg11\n3,1,30,vgg11\n"
        "4,1,30,vgg11\n"
    )
    result = cluster("simulate", "--trace", trace, "--cluster", "1x4", "--policy", "fifo",
                     "--json", tmp_path / "out.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "row 3: no profile for the model 'gpt9'" in result.output
    assert figures(tmp_path / "out.json")["trace"] == {
        "path": str(trace),
        "rows": 5,
        "jobs": 3,
        "left_out": {},
        "bad_rows": [
            {"row": 3, "reason": "no profile for the model 'gpt9'"},
            {"row": 4, "reason": "gpus is 'x'; expected a number"},
        ],
    }


def test_ten_bad_rows_are_shown_and_all_are_written(tmp_path):
    trace = tmp_path / "jobs.csv"
    rows = [f"{i},{'1' if i % 2 else 'x'},60" for i in range(24)]
    trace.write_text("\n".join(["submit_s,gpus,duration_s", *rows]))
    result = cluster("simulate", "--trace", trace, "--cluster", "1x4", "--policy", "fifo",
                     "--json", tmp_path / "out.json")  # fmt: skip
    assert result.output.count("gpus is 'x'") == 10
    assert "and 2 more" in result.output
    bad = figures(tmp_path / "out.json")["trace"]["bad_rows"]
    assert [row["row"] for row in bad] == list(range(2, 26, 2))


def test_the_setup_says_what_was_run_and_nothing_else(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,duration_s\n0,1,60\n1,1,60\n")
    words = ["simulate", "--policy", "fifo", "--json", tmp_path / "out.json"]
    cluster(*words, "--cluster", "1x4", "--trace", trace)
    setup = figures(tmp_path / "out.json")["setup"]
    assert setup["trace"] == str(trace)
    assert not setup.keys() & {"generate", "mix", "jobs", "tenants", "load"}
    cluster(*words, "--cluster", "2x2x4", "--jobs", 20)
    setup = figures(tmp_path / "out.json")["setup"]
    assert (setup["generate"], setup["mix"], setup["jobs"], setup["load"]) == (
        "poisson", "dally", 20, 0.8,
    )  # fmt: skip
    assert "trace" not in setup


def test_speedup_brings_jobs_sooner(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,duration_s\n0,1,100\n100,1,100\n")
    for speedup, makespan_s in ((1, 200), (4, 125)):
        cluster("simulate", "--trace", trace, "--cluster", "2", "--policy", "fifo",
                "--speedup", speedup, "--json", tmp_path / "out.json")  # fmt: skip
        assert figures(tmp_path / "out.json")["makespan_s"] == pytest.approx(makespan_s, rel=0.01)


def test_a_trace_may_name_models_of_a_file(tmp_path):
    (tmp_path / "mine.json").write_text('[{"name": "mine", "compute_s": 2.0, "buckets": []}]')
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,iterations,model\n0,1,30,mine\n")
    words = ["simulate", "--trace", trace, "--cluster", "1", "--policy", "fifo"]
    assert "no profile for mine" in cluster(*words).output
    cluster(*words, "--profiles", tmp_path / "mine.json", "--json", tmp_path / "out.json")
    assert figures(tmp_path / "out.json")["makespan_s"] == 60


def test_models_without_a_speed_on_a_kind_of_gpu_are_named(tmp_path):
    (tmp_path / "c.yaml").write_text("shape: 2x2x4\nkinds: [v100, k80]")
    (tmp_path / "mine.json").write_text(
        '[{"name": "slow", "compute_s": 1.0, "buckets": [], "speeds": {"k80": 0.25, "v100": 1}},'
        ' {"name": "unsaid", "compute_s": 1.0, "buckets": [], "speeds": {"v100": 1}}]'
    )
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,iterations,model\n0,4,30,slow\n0,4,30,unsaid\n")
    result = cluster(
        "simulate",
        "--cluster",
        tmp_path / "c.yaml",
        "--trace",
        trace,
        "--profiles",
        tmp_path / "mine.json",
        "--policy",
        "fifo",
        "--json",
        tmp_path / "out.json",
    )
    assert result.exit_code == 0, result.output
    (note,) = figures(tmp_path / "out.json")["notes"]
    assert note.startswith("on k80 these run as fast as on their reference GPU")
    assert note.endswith(": unsaid")
    assert note in " ".join(result.output.split())


def test_compare_runs_the_same_jobs_under_each_policy(tmp_path, monkeypatch):
    monkeypatch.setitem(POLICIES, "strict", lambda: named(Fifo(backfill=False), "strict"))
    result = cluster("compare", *SMALL, "--policies", "fifo,strict", "--json", tmp_path / "c.json",
                     "--html", tmp_path / "c.html")  # fmt: skip
    assert result.exit_code == 0, result.output
    first, second = figures(tmp_path / "c.json")["runs"]
    assert (first["label"], second["label"]) == ("fifo", "strict")
    assert first["jobs"] == second["jobs"] == 40
    assert second["queueing_s"] > first["queueing_s"]
    assert "mean JCT" in result.output
    assert "strict" in result.output


def named(policy, name):
    policy.name = name
    return policy


def test_compare_all_takes_every_policy_there_is(tmp_path):
    result = cluster("compare", "--cluster", "2x4", "--jobs", 12, "--load", 1.1,
                     "--json", tmp_path / "all.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert [run["label"] for run in figures(tmp_path / "all.json")["runs"]] == list(POLICIES)


def test_sweep_runs_every_combination(tmp_path):
    result = cluster("sweep", *SMALL, "--policy", "fifo", "--vary", "load=0.001,1.5",
                     "--vary", "oversubscription=1,8", "--json", tmp_path / "s.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = figures(tmp_path / "s.json")["runs"]
    assert [run["label"] for run in runs] == [
        "load 0.001, oversubscription 1",
        "load 0.001, oversubscription 8",
        "load 1.5, oversubscription 1",
        "load 1.5, oversubscription 8",
    ]
    assert runs[0]["queueing_s"] < runs[2]["queueing_s"]


def test_several_processes_give_the_same_figures(tmp_path):
    for processes in (1, 2):
        cluster("sweep", *SMALL, "--policy", "fifo", "--vary", "seed=1,2", "--processes", processes,
                "--json", tmp_path / f"{processes}.json")  # fmt: skip
    assert without_run(figures(tmp_path / "1.json")) == without_run(figures(tmp_path / "2.json"))


def figures_under(hash_seed, path, *words):
    """What a process with this hash seed writes, but for `run`, as text."""
    command = [sys.executable, "-m", "nimble", "cluster", *map(str, words), "--json", str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return json.dumps(without_run(figures(path)))


def test_figures_are_the_same_in_every_process_and_under_every_hash_seed(tmp_path):
    words = ["compare", *SMALL, "--policies", "all", "--tenants", 3, "--mtbf", 40,
             "--checkpoint-every", 600, "--restart", 30]  # fmt: skip
    first, second = (figures_under(seed, tmp_path / "c.json", *words) for seed in ("1", "2"))
    assert first == second
    assert '"preemptions": 0' in first
    assert len(first) > 10_000


BY_HASH = """
from nimble.cluster.policies.fifo import Fifo

class ByHash(Fifo):
    name = "by-hash"

    def rank(self, state, view):
        return hash(state.job.name) % 1000
"""


def test_a_policy_that_goes_by_hashes_is_told_apart(tmp_path):
    """So the test before this one can fail."""
    (tmp_path / "mine.py").write_text(BY_HASH)
    words = ["simulate", *SMALL, "--policy", f"{tmp_path / 'mine.py'}:ByHash"]
    first, second = (figures_under(seed, tmp_path / "s.json", *words) for seed in ("1", "2"))
    assert first != second


OWN = """
from math import inf

class Mine:
    name = "mine"
    lease_s = 60.0

    def __init__(self, lease_s=60.0):
        self.lease_s = lease_s

    def rank(self, state, view):
        return state.job.submit_s

    def decide(self, view, memory, now):
        from nimble.cluster import Reason
        draft = view.draft()
        for state in view.waiting:
            placement = draft.tightest(state)
            if placement is not None:
                draft.start(state, placement, Reason("mine", (self.lease_s,)))
        return draft.actions(), memory, inf

    reasons = {"mine": "because I say so, for {0:.0f} s"}
"""


def test_a_policy_of_ones_own_is_one_class_in_one_file(tmp_path):
    path = tmp_path / "my_policy.py"
    path.write_text(OWN)
    result = cluster("simulate", *SMALL, "--policy", f"{path}:Mine", "--lease", 90, "--story", 0)
    assert result.exit_code == 0, result.output
    assert "because I say so, for 90 s" in result.output
    result = cluster("simulate", *SMALL, "--policy", f"{path}:Yours")
    assert result.exit_code == 1
    assert "has no class Yours" in " ".join(result.output.split())
