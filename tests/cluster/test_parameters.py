"""A policy's parameters are set from the command line, and varied."""

from __future__ import annotations

import json

import pytest
from as_a_user import SMALL, cluster

from nimble.cluster.parameters import known, make, shared
from nimble.cluster.policies import POLICIES
from nimble.cluster.setup import Setup, varied
from nimble.errors import InputError

OWN = """
class Mine:
    name = "mine"

    def __init__(self, patience=3, factor=0.5, greedy=False, sizes=(1, 2), note="x", limit=None):
        self.given = (patience, factor, greedy, sizes, note, limit)

    def rank(self, state, view):
        return 0.0

    def decide(self, view, memory, now):
        raise RuntimeError(repr(self.given))
"""


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_parameter_of_every_policy_can_be_set(name):
    for parameter, usual in known(name).items():
        _, all_of_them = make(name, ((parameter, 1 if usual is None else usual),))
        assert parameter in all_of_them


def test_a_variant_has_its_own_defaults():
    assert known("dally")["lease_s"] == 600
    assert known("dally-20s")["lease_s"] == 20
    assert make("dally-20s", (("lease", 40),))[0].lease_s == 40
    assert known("srtf") == {}


def test_a_unit_may_be_left_out():
    assert make("dally", (("lease", 300),))[0].lease_s == 300.0
    assert make("tiresias", (("limits", (1, 2)),))[0].limits_gpu_s == (1, 2)


def test_values_take_the_type_of_the_default(tmp_path):
    path = tmp_path / "my_policy.py"
    path.write_text(OWN)
    words = ["simulate", *SMALL, "--policy", f"{path}:Mine"]
    for text in ("patience=7", "factor=2", "greedy=on", "sizes=[4,8]", "note=y", "limit=9"):
        words += ["--set", text]
    result = cluster(*words)
    assert "(7, 2.0, True, (4, 8), 'y', 9)" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("policy", "text", "said"),
    [
        ("dally", "leas=3", "policy 'dally' has no parameter 'leas'; it has lease_s=600, history"),
        ("srtf", "lease=3", "policy 'srtf' has no parameter 'lease'; it has none"),
        ("dally", "lease=soon", "parameter lease of policy 'dally' is 'soon'; expected a number"),
        ("dally", "history=2.5", "is 2.5; expected a whole number"),
        ("fifo", "backfill=2", "is 2; expected on or off"),
        ("tiresias", "limits=3", "is 3; expected a list such as"),
        ("dally", "lease=0", "leases of 0 s; expected more than 0"),
        ("dally", "lease", "--set lease: expected name=value"),
        ("dally", "lease=[1", "expected a number, on, off, null or [a list]"),
    ],
)
def test_what_cannot_be_set_is_said(policy, text, said):
    result = cluster("simulate", *SMALL, "--policy", policy, "--set", text)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_sweep_varies_a_policys_parameters(tmp_path):
    result = cluster("sweep", *SMALL, "--vary", "policy.lease=60,6000", "--set", "history=12",
                     "--json", tmp_path / "s.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    short, long = json.loads((tmp_path / "s.json").read_text())["runs"]
    assert (short["label"], long["label"]) == ("lease 60", "lease 6000")
    assert short["setup"]["parameters"]["lease_s"] == 60
    assert long["setup"]["parameters"] == {
        "lease_s": 6000, "history": 12, "rack": None, "network": None, "tick_s": None,
    }  # fmt: skip
    assert short["preemptions"] > long["preemptions"]
    result = cluster("sweep", *SMALL, "--vary", "policy.leas=60,6000")
    assert "policy 'dally' has no parameter 'leas'" in " ".join(result.output.split())


def test_lists_are_varied_whole():
    found = varied(Setup(policy="tiresias"), ["policy.limits=[900,3600],[60]"])
    assert [setup.parameters for _, setup in found] == [
        (("limits", (900, 3600)),),
        (("limits", (60,)),),
    ]


def test_in_a_comparison_those_that_have_a_parameter_get_it(tmp_path):
    result = cluster("compare", *SMALL, "--policies", "fifo,dally,gandiva", "--set", "lease=90",
                     "--json", tmp_path / "c.json")  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = json.loads((tmp_path / "c.json").read_text())["runs"]
    assert [run["setup"]["parameters"].get("lease_s") for run in runs] == [None, 90, 90]
    with pytest.raises(InputError, match="no policy has a parameter 'leese'; there are fifo: back"):
        shared(["fifo", "dally"], (("leese", 90),))
