"""What `nimble cluster` refuses, and what it keeps of a run that went wrong."""

import re

import pytest
from as_a_user import SMALL, cluster, figures

from nimble.cluster.policies import POLICIES
from nimble.cluster.policies.fifo import Fifo


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
        ("load=", "--vary load=: no values"),
        ("policy.lease=", "--vary policy.lease=: no values"),
        ("load=much", "expected a number"),
        ("contention=maybe", "expected on or off"),
        ("collective=star", "ring or tree or hierarchical"),
    ],
)
def test_a_sweep_says_what_can_be_varied(vary, said):
    result = cluster("sweep", *SMALL, "--vary", vary)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


def test_what_is_varied_twice_and_nobody_to_compare_are_refused():
    result = cluster("sweep", *SMALL, "--vary", "load=0.5", "--vary", "load=0.9")
    assert result.exit_code == 1
    assert "--vary load is given twice" in result.output
    result = cluster("compare", *SMALL, "--policies", ",")
    assert result.exit_code == 1
    assert "expected names separated by commas, or all" in result.output


def test_failures_without_end_are_refused():
    result = cluster("simulate", *SMALL, "--mtbf", "1e-9", "--repair", "1e-9")
    assert result.exit_code == 1
    assert "Let them be rarer" in result.output


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
        ("- limits", "expected a mapping with some of quotas"),
        ("drain: []", "unknown drain; there are quotas, reservations, drains, outages"),
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
