"""The `nimble` command, as a user runs it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from typer.testing import CliRunner

import nimble
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

def few_ids():
    torch.manual_seed(0)
    return nn.Embedding(5, 3), (torch.tensor([1, 2]),)

def offsets():
    torch.manual_seed(0)
    args = (torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2]))
    return nn.EmbeddingBag(6, 3), args

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.calls += x
        x.mul_(2)
        return x, self.calls * x, "text", 3.5

def counting():
    torch.manual_seed(0)
    return Counting(), (torch.randn(2),)

# In what follows the model does something else while it is captured, as a wrong engine would.
def traced(x):
    return type(x) is not torch.Tensor

def forgets_the_input():
    return (lambda x: x + 1 if traced(x) else x.add_(1) * 1), (torch.randn(3),)

def forgets_the_state():
    class Model(Counting):
        def forward(self, x):
            if not traced(x):
                self.calls += 1
            return x * 2
    return Model(), (torch.randn(2),)

def copies():
    return (lambda x: (x[1:].clone() if traced(x) else x[1:], x * 2)), (torch.randn(3),)

def other_constant():
    return (lambda x: (x * 2, "a" if traced(x) else "b")), (torch.randn(3),)

def unfit():
    return 3
"""


@pytest.fixture
def factories(tmp_path):
    path = tmp_path / "factories.py"
    path.write_text(FACTORIES)
    return path


def test_check_takes_factories(factories):
    names = ("good", "with_keywords", "few_ids", "offsets", "counting")
    result = runner.invoke(app, ["check", *(f"{factories}:{name}" for name in names)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("blind", "apart"),
        ("suspicious", "off by"),
        ("forgets_the_input", "input 0 is left otherwise"),
        ("forgets_the_state", "calls is left otherwise"),
        ("copies", "result 0 shares memory with input 0"),
        ("other_constant", "'b'"),
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
    result = runner.invoke(app, ["plan", "gnn", "--graph", "--tasks", "--timeline", str(picture)])
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


def test_a_file_without_a_factory_says_how_to_name_one(tmp_path):
    result = runner.invoke(app, ["plan", "models.py"])
    assert result.exit_code == 1
    assert "models.py:make" in result.output


def test_the_version_is_told():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith(f"nimble {nimble.__version__}, torch 2.")


def test_the_networks_are_listed_with_what_they_take():
    result = runner.invoke(app, ["networks"])
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if line.strip().startswith("resnet50"))
    assert line.split() == ["resnet50", "1x3x224x224", "25.56", "4.089"]


def test_a_size_that_is_no_number_is_at_fault_itself():
    result = runner.invoke(app, ["plan", "resnet50@abc"])
    assert result.exit_code == 1
    assert "'abc' is no size of resnet50" in result.output
    assert "no network" not in result.output


def test_a_place_that_cannot_be_written_is_named_before_the_work(tmp_path):
    result = runner.invoke(app, ["check", "mlp", "--json", str(tmp_path / "nodir" / "x.json")])
    assert result.exit_code == 1
    assert "no file can be written there" in result.output
    assert "passed" not in result.output


def test_demo_shows_the_whole_way_through(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "nimble", "demo", "--folder", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "same bits: yes" in done.stdout
    assert (tmp_path / "run.json").exists()


def test_names_are_shown_as_they_were_typed():
    done = CliRunner().invoke(app, ["plan", "nope.py:factory"])
    assert done.exit_code == 1
    assert "nope.py:factory" in done.output
