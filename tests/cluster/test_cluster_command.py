"""`nimble cluster`, as a user runs it."""

import json
import os
import re
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


def test_a_trace_of_jobs_that_are_all_too_large_is_refused(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,gpus,duration_s\n0,8,60\n")
    result = cluster("simulate", "--trace", trace, "--cluster", "1x4", "--policy", "fifo")
    assert result.exit_code == 1
    assert "no job of it fits into 4 GPUs" in result.output


def test_a_run_that_is_stopped_says_so_and_counts_only_what_was(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "submit_s,gpus,iterations,model\n0,1,100,unit\n0,1,300,unit\n50,2,100,unit\n900,1,10,unit\n"
    )
    (tmp_path / "unit.json").write_text('[{"name": "unit", "compute_s": 1.0, "buckets": []}]')
    result = cluster("simulate", "--trace", trace, "--cluster", "2", "--policy", "fifo", "--until",
                     200, "--profiles", tmp_path / "unit.json", "--json", tmp_path / "out.json",
                     "--html", tmp_path / "out.html")  # fmt: skip
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "stopped after 3.3 min: 1 of 4 jobs finished, 1 ran, 1 waited, 1 had not come" in told
    assert "75.0 % until it was stopped" in told
    found = figures(tmp_path / "out.json")
    assert not found["complete"]
    assert found["makespan_s"] is None
    assert found["simulated_s"] == 200
    # 100 and 200 s of 2 GPUs x 200 s; the wait of 150 s is of the three that had come.
    assert found["utilisation"] == found["utilisation_submissions"] == 0.75
    assert found["queueing_s"] == 50
    assert (found["running"], found["waiting"], found["to_come"]) == (1, 1, 1)


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
    result = cluster("sweep", *SMALL, "--policy", "fifo", "--vary", "load=0.3,1.5",
                     "--vary", "oversubscription=1,8", "--json", tmp_path / "s.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = figures(tmp_path / "s.json")["runs"]
    assert [run["label"] for run in runs] == [
        "load 0.3, oversubscription 1",
        "load 0.3, oversubscription 8",
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


class Never(Fifo):
    """Starts the first nine jobs and then nobody."""

    name = "never"

    def decide(self, view, memory, now):
        actions, memory, wake_at = super().decide(view, memory, now)
        return [action for action in actions if action.job < 9], memory, wake_at


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Raises, "out of ideas"),
        (Twice, "booked twice"),
        (Never, "left 11 jobs waiting for ever, the first of them job 9 (job9)"),
    ],
)
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
    assert found["finished"] == {Raises: 8, Twice: 0, Never: 9}[policy]
    assert found["running"] + found["waiting"] + found["to_come"] == 20 - found["finished"]
    assert found["makespan_s"] is None
    assert re.search(r"policy '\w+' at [\d.]+ s, after the \w+", found["error"])


def test_rules_that_shut_jobs_out_end_the_run_and_are_named(tmp_path):
    (tmp_path / "rules.yaml").write_text("drains: [{machine: network, start_s: 1000}]")
    result = cluster("simulate", *SMALL, "--policy", "fifo", "--rules", tmp_path / "rules.yaml",
                     "--json", tmp_path / "out.json")  # fmt: skip
    assert result.exit_code == 1
    assert "RulesError: at" in " ".join(result.output.split())
    assert "PolicyError" not in result.output
    assert "leave it 0 of 16" in figures(tmp_path / "out.json")["error"]


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
        (["--lease", "0"], "--lease 0: expected a number above 0"),
        (["--load", "-1"], "--load -1: expected a number above 0"),
        (["--load", "nan"], "--load nan: expected a number above 0"),
        (["--tenants", "0"], "--tenants 0: expected a number above 0"),
        (["--jobs", "0"], "--jobs 0: expected a number above 0"),
        (["--seed", "-1"], "--seed -1: expected 0 or more"),
        (["--speedup", "0"], "--speedup 0: expected a number above 0"),
        (["--mtbf", "-3"], "--mtbf -3: expected 0 or more"),
        (["--repair", "0"], "--repair 0: expected a number above 0"),
        (["--checkpoint-every", "-5"], "--checkpoint-every -5: expected 0 or more"),
        (["--gpus-per-machine", "0"], "--gpus-per-machine 0: expected a number above 0"),
        (["--warm-up", "0.7", "--cool-down", "0.4"], "expected shares below 1"),
        (["--cluster", "99999x99999x8"], "9,999,800,001 machines"),
        (["--cluster", "1x99999999999"], "at most 1,000,000 machines and 100,000,000 GPUs"),
        (["--cluster", "1x1x1x1x1x1x1x1x1x8"], "8 or fewer"),
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


def test_rules_are_of_tenants_there_are(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("quotas: {tenant0: 64, visoin: 64}")
    words = ["simulate", *SMALL, "--policy", "fifo", "--tenants", 2, "--rules", path]
    result = cluster(*words)
    assert result.exit_code == 1
    assert "quota for tenant 'visoin': the jobs' tenants are tenant0, tenant1" in " ".join(
        result.output.split()
    )
    path.write_text("quotas: {tenant0: 64}")
    assert cluster(*words).exit_code == 0


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
        ("quotas: {tenant0: 4}", "quota for tenant 'tenant0': no job has a tenant"),
        ("reservations: [{tenant: a, machines: [0]}]", "reservation for tenant 'a': no job has"),
        ("drains: [{machine: 0, start_s: 9, end_s: 3}]", "it ends at 3 s, before its start at 9 s"),
        ("drains: [{machine: 0, start: 9}]", "unknown start in {'machine': 0, 'start': 9}"),
        ("drains: [{machine: 4}]", "no machine 4; they are 0 to 3"),
        ("drains: [{machine: true}]", "no machine True"),
    ):
        path.write_text(wrong)
        result = cluster("simulate", *SMALL, "--policy", "fifo", "--rules", path)
        assert result.exit_code == 1
        assert said in " ".join(result.output.split())
