"""The code in docs/cluster.md and the example run as they are written."""

import re
from pathlib import Path

import pytest
import yaml

from nimble.cluster import Job, Profile, parse, simulate
from nimble.cluster.rules_files import load_rules
from nimble.cluster.topology_files import load_topology

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "cluster.md").read_text()
POLICY, FROM_PYTHON = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
CLUSTER, RULES = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize(
    ("seconds", "at_s", "code"),
    [
        # Two machines of two GPUs. At 100 s two GPUs are free: of one machine, or one of each.
        ((10800, 10800, 60, 60), 100, "tightest"),
        ((10800, 60, 10800, 60), 3700, "patience_over"),
    ],
)
def test_the_policy_waits_an_hour_for_a_tighter_place(seconds, at_s, code):
    made = {}
    exec(POLICY, made)
    second = Profile("second", 1.0, ())
    jobs = [Job(i, f"job{i}", 0.0, 1, 1, long, second) for i, long in enumerate(seconds)]
    jobs.append(Job(4, "job4", 100.0, 2, 2, 60, second))
    result = simulate(parse("2x2"), jobs, made["Patient"]())
    start = next(event for event in result.record.of_job(4) if event.placement)
    assert (start.at_s, start.reason.code) == (at_s, code)


def test_what_is_said_of_python_runs(capsys):
    exec(FROM_PYTHON, {})
    assert "job17" in capsys.readouterr().out


def test_the_files_are_read(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    topology = load_topology(str(tmp_path / "cluster.yaml"))
    assert topology.gpus == 2048
    assert topology.capacity[topology.names.index("rack3")] == 50e9 / 8
    (tmp_path / "rules.yaml").write_text(RULES)
    rules, outages = load_rules(str(tmp_path / "rules.yaml"), parse("4x4x8"))
    assert rules.quotas == yaml.safe_load(RULES)["quotas"]
    assert rules.reservations[0].machines == (0, 1, 2, 3)
    assert len(outages) == 1
