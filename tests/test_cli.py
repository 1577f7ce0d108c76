"""The `nimble` command, as a user runs it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from typer.testing import CliRunner

from nimble.cli.main import app

runner = CliRunner()


def test_check_compares_with_eager_and_writes_rows(tmp_path):
    result = runner.invoke(app, ["check", "mlp", "gnn", "--json", str(tmp_path / "rows.json")])
    assert result.exit_code == 0, result.output
    assert "2 passed, 0 failed" in result.output
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["name"] for row in rows] == ["mlp", "gnn"]
    assert {"ok", "max_abs_err", "tasks", "fallbacks", "streams", "waits", "arena_bytes",
            "arena_lower_bound", "compile_s"} <= rows[0].keys()  # fmt: skip


FACTORIES = """
import torch
from torch import nn

def good():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (torch.randn(2, 4),)

def with_keywords():
    torch.manual_seed(0)
    return (lambda x, *, scale: x * scale + 1), (torch.randn(3),), {"scale": torch.randn(3)}

def blind():
    return (lambda x: x * 0 + 1), (torch.randn(3),)

def suspicious():
    return (lambda x: x * (2 if type(x) is torch.Tensor else 3)), (torch.randn(3),)

def unfit():
    return 3
"""


@pytest.fixture
def factories(tmp_path):
    path = tmp_path / "factories.py"
    path.write_text(FACTORIES)
    return path


def test_check_takes_factories(factories):
    result = runner.invoke(app, ["check", f"{factories}:good", f"{factories}:with_keywords"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("blind", "apart"),
        ("suspicious", "off by"),
        ("unfit", "must return"),
        ("missing", "no function"),
    ],
)
def test_check_is_able_to_fail(factories, name, text):
    result = runner.invoke(app, ["check", f"{factories}:{name}"])
    assert result.exit_code == 1
    assert text in result.output


def test_plan_explains_and_draws(tmp_path):
    picture = tmp_path / "run.svg"
    result = runner.invoke(app, ["plan", "gnn", "--tasks", "--timeline", str(picture)])
    assert result.exit_code == 0, result.output
    for word in (
        "captured",
        "streams",
        "waits",
        "arena",
        "lower bound",
        "predicted",
        "measured",
        "ATen",
    ):
        assert word in result.output
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_plan_honours_a_memory_limit_or_says_what_would_fit():
    result = runner.invoke(app, ["plan", "gnn", "--memory-limit", "10"])
    assert result.exit_code == 1
    assert "no order of the tasks can do with less" in result.output


def test_unknown_networks_are_named():
    result = runner.invoke(app, ["plan", "resnet51"])
    assert result.exit_code == 1
    assert "resnet51" in result.output
    assert "resnet50" in result.output


def test_demo_shows_the_whole_way_through(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "nimble", "demo", "--folder", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "same bits: yes" in done.stdout
    assert (tmp_path / "run.json").exists()
