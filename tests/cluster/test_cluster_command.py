"""`nimble cluster`, as a user runs it."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from nimble.cli.main import app
from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.fifo import Fifo

runner = CliRunner()
SMALL = ["--cluster", "2x2x4", "--jobs", "40", "--load", "1.2", "--seed", "3"]


def cluster(*words):
    return runner.invoke(app, ["cluster", *map(str, words)])


def figures(path):
    return json.loads(path.read_text())


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


def test_figures_are_the_same_in_every_process_and_under_every_hash_seed(tmp_path):
    texts = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.json"
        command = [sys.executable, "-m", "nimble", "cluster", "compare", *SMALL,
                   "--policies", "all", "--tenants", "3", "--json", str(path)]  # fmt: skip
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
                       capture_output=True)  # fmt: skip
        texts.append(json.dumps(without_run(figures(path))))
    assert texts[0] == texts[1]


class Raises(Fifo):
    """Goes wrong when the tenth job has come."""

    name = "raises"

    def decide(self, view, memory, now):
        if len(view.jobs) and max(view.jobs) >= 9:
            raise RuntimeError("out of ideas")
        return super().decide(view, memory, now)


class Twice(Fifo):
    """Gives the first GPU to everybody."""

    name = "twice"

    def decide(self, view, memory, now):
        actions, memory, wake_at = super().decide(view, memory, now)
        return [action._replace(placement=((0, 1),)) for action in actions], memory, wake_at


@pytest.mark.parametrize(("policy", "said"), [(Raises, "out of ideas"), (Twice, "booked twice")])
def test_what_came_before_a_policy_went_wrong_is_kept(tmp_path, monkeypatch, policy, said):
    monkeypatch.setitem(POLICIES, policy.name, policy)
    trace = tmp_path / "jobs.csv"
    rows = "".join(f"{i // 2 * 10},1,{5 + i % 2}\n" for i in range(20))
    trace.write_text(f"submit_s,gpus,duration_s\n{rows}")
    result = cluster("simulate", "--trace", trace, "--cluster", "8x1", "--policy", policy.name,
                     "--json", tmp_path / "out.json", "--html", tmp_path / "out.html")  # fmt: skip
    assert result.exit_code == 1
    assert said in result.output
    assert policy.name in result.output
    found = figures(tmp_path / "out.json")
    assert said in found["error"]
    assert not found["complete"]
    assert (tmp_path / "out.html").exists()
    assert found["finished"] == (8 if policy is Raises else 0)


def test_in_a_comparison_the_others_run_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(POLICIES, "raises", Raises)
    result = cluster("compare", *SMALL, "--policies", "raises,fifo", "--json", tmp_path / "c.json")
    assert result.exit_code == 1
    broken, whole = figures(tmp_path / "c.json")["runs"]
    assert "out of ideas" in broken["error"]
    assert whole["error"] is None
    assert whole["complete"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "fifos"], "policy 'fifos': expected one of"),
        (["--cluster", "16by8"], "such as 16x16x8"),
        (["--cluster", "0x8"], "whole numbers above 0"),
        (["--trace", "nowhere.csv"], "nowhere.csv: No such file"),
        (["--generate", "weekly"], "expected poisson, diurnal, batch"),
        (["--generate", "batch", "--load", "0.5"], "they have no load"),
        (["--mix", "mine"], "expected one of dally, philly"),
        (["--rules", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--json", "no/such/folder/out.json"], "no file can be written there"),
        (["--lease", "0"], "expected seconds above 0"),
        (["--load", "-1"], "expected a number above 0"),
        (["--story", "5000"], "there are 40 jobs"),
    ],
)
def test_errors_say_what_was_expected(words, said):
    result = cluster("simulate", *SMALL, *words)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("loads=1,2", "with a name of cluster"),
        ("load", "expected name=value,value"),
        ("load=much", "expected a number"),
        ("contention=maybe", "expected on or off"),
        ("collective=star", "ring or tree or hierarchical"),
    ],
)
def test_a_sweep_says_what_can_be_varied(vary, said):
    result = cluster("sweep", *SMALL, "--vary", vary)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


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


RULES = """
quotas: {tenant0: 4}
reservations: [{tenant: tenant1, machines: [rack1], start_s: 0, end_s: 86400}]
drains: [{machine: machine0, start_s: 0}]
outages: [{machine: 1, at_s: 100, until_s: 200}]
"""


def test_rules_are_read_from_a_file(tmp_path):
    from nimble.cluster import parse
    from nimble.cluster.rules_files import load_rules

    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    rules, outages = load_rules(str(path), parse("2x2x4"))
    assert rules.quotas == {"tenant0": 4}
    assert rules.reservations[0].machines == (2, 3)
    assert rules.drains[0].machine == 0
    assert (outages[0].machine, outages[0].at_s, outages[0].until_s) == (1, 100, 200)
    for wrong, said in (
        ("quotas: {a: many}", "number of GPUs"),
        ("drains: [{machine: machine9}]", "no machine 'machine9'"),
        ("outages: [{machine: 1}]", "has no at_s"),
        ("outages: [{machine: 1, at_s: soon, until_s: 5}]", "expected seconds"),
        ("limits: 3", "expected a mapping with some of"),
        ("drains: {machine: 1}", "expected a list"),
        ("a: [", "not YAML"),
    ):
        path.write_text(wrong)
        result = cluster("simulate", *SMALL, "--policy", "fifo", "--rules", path)
        assert result.exit_code == 1
        assert said in " ".join(result.output.split())
