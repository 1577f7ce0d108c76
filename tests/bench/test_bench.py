"""A bench from start to end, with contestants that behave and others that do not."""

import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from nimble.bench import Result, Settings, bench
from nimble.bench.child import SPINNING, Child
from nimble.bench.contestants import KNOWN, MissingError, contestant
from nimble.bench.job import Job
from nimble.bench.limits import Peaks
from nimble.cli.main import app
from nimble.errors import InputError

STUBS = Path(__file__).parent / "stubs.py"
TIMEOUT = 30
"""Seconds; those who behave need a few to compile, on a busy machine many."""
REASONS = {
    "zeros": "wrong: off by 1e+00 (allowed 1e-04)",
    "stale": "wrong: off by ",
    "segfaults": "crashed: signal 11",
    "exits": "crashed: exit code 3",
    "hangs": f"no answer within {TIMEOUT} s",
    "raises": "raised RuntimeError: no kernel for [this]",
    "dies_later": "crashed: signal 9",
}


def stub(name):
    return f"{STUBS}:{name}"


def peaks(threads, folder):
    return Peaks(threads, 1e11, {1: 1e10})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the command writes."""
    folder = tmp_path_factory.mktemp("bench")
    models = ",".join((stub("small"), stub("blind"), stub("absent")))
    against = ",".join((stub("honest"), *map(stub, REASONS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peaks, "measure", peaks)
        done = CliRunner().invoke(
            app,
            ["bench", "--models", models, "--against", against, "--threads", "1", "--rounds", "3",
             "--timeout", str(TIMEOUT),
             "--json", str(folder / "out.json"), "--html", str(folder / "out.html")],
        )  # fmt: skip
    assert done.exit_code == 1, done.output  # Two models are refused.
    (folder / "out.txt").write_text(done.output)
    return folder


@pytest.fixture(scope="module")
def result(files):
    return Result.load(files / "out.json")


def row_of(result, name, model="small"):
    return next(
        r
        for r in result.rows
        if r.contestant.endswith(name) and r.model.endswith(model) and r.threads == 1
    )


@pytest.mark.parametrize("name", REASONS)
def test_a_contestant_that_fails_is_shown_with_its_reason(result, name):
    row = row_of(result, name)
    assert not row.ok
    assert row.reason.startswith(REASONS[name])
    assert row.median_ms is None
    assert row.ratio is None


@pytest.mark.parametrize("name", ["nimble", "honest"])
def test_the_others_go_on(result, name):
    row = row_of(result, name)
    assert row.ok, row.reason
    assert row.reason == ""
    assert 0 < row.min_ms <= row.median_ms <= row.p99_ms
    assert row.ratio_low <= row.ratio <= row.ratio_high
    assert row.best == row.threads == 1
    assert row.first_ms >= 1e3 * row.compile_s
    assert row.peak_mb >= row.running_mb > 10
    assert row.error <= 1e-4
    assert row.of_limit > 0


def test_nimble_is_its_own_measure_and_knows_its_overhead(result):
    row = row_of(result, "nimble")
    assert (row.ratio, row.ratio_low, row.ratio_high) == (1, 1, 1)
    assert row.overhead_ms > 0
    assert 0 < row.overhead_share < 1
    assert row.call_ms > 0
    assert row_of(result, "honest").overhead_ms is None


def test_a_model_that_cannot_be_judged_is_refused_and_the_rest_goes_on(result):
    assert "a wrong answer could not be seen" in row_of(result, "nimble", "blind").reason
    assert "has no function 'absent'" in row_of(result, "nimble", "absent").reason
    assert [network.model for network in result.networks] == [stub("small")]


def test_the_json_has_the_promised_fields_and_reads_back(files, result, tmp_path):
    read = json.loads((files / "out.json").read_text())
    assert {"cpu", "cores", "torch", "python", "peaks"} <= read["machine"].keys()
    assert len(read["rows"]) == 3 * (2 + len(REASONS))
    for row in read["rows"]:
        assert {"model", "contestant", "threads", "best", "ok", "reason", "median_ms", "min_ms",
                "p99_ms", "compile_s", "first_ms", "peak_mb", "ratio", "ratio_low",
                "ratio_high"} <= row.keys()  # fmt: skip
        assert row["ok"] == (row["median_ms"] is not None) == (row["reason"] == "")
    result.save(tmp_path / "again.json")
    assert Result.load(tmp_path / "again.json") == result


class Links(HTMLParser):
    """Collects what a page refers to, and what it leaves open."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.refers = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.refers += [value for name, value in attrs if name in ("src", "href", "data")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_on_its_own(files, result):
    text, links = (files / "out.html").read_text(), Links()
    assert text.startswith("<!DOCTYPE html>")
    links.feed(text)
    assert links.open == []
    assert links.refers == []
    assert "script" not in links.tags
    assert "http" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    for row in result.rows:
        assert row.contestant in text
    for reason in REASONS.values():
        assert reason in text


def test_the_table_shows_failures_as_they_were_reported(files):
    text = (files / "out.txt").read_text()
    assert "limit" in text
    assert "scheduling overhead" in text
    for reason in REASONS.values():
        assert reason in text


def test_the_machine_is_measured(tmp_path):
    found = Peaks.measure(1, tmp_path)
    assert found.flops > 1e8
    assert all(speed > 1e8 for speed in found.bandwidth.values())
    sizes = sorted(found.bandwidth)
    assert found.bandwidth_for(sizes[1] + 1) == found.bandwidth[sizes[1]]
    assert found.bandwidth_for(1) == found.bandwidth[sizes[0]]


def test_a_peer_that_is_not_installed_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "nimble.bench.contestants.openvino", raising=False)
    with pytest.raises(MissingError, match=r"not installed: .*pip install '\.\[bench\]'"):
        contestant("openvino")


def test_unknown_contestants_and_settings_are_refused():
    with pytest.raises(InputError, match="no contestant 'onxruntime'; expected some of eager"):
        Settings(("onxruntime",))
    with pytest.raises(InputError, match="threads"):
        Settings(threads=(0,))
    assert "onnxruntime" in KNOWN


def test_a_name_that_no_network_has_is_refused_before_anything_runs(tmp_path):
    done = CliRunner().invoke(app, ["bench", "--models", "mlp,resnet51"])
    assert done.exit_code == 1
    assert "no network 'resnet51'" in done.output


def test_a_bench_that_is_cut_off_leaves_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setattr(Peaks, "measure", peaks)
    found = []

    def keep(result):
        found.append(result.models)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench([stub("small"), stub("absent")], Settings((), (1,), 1), keep=keep)
    assert found == [[stub("small")]]


@pytest.fixture
def material(tmp_path):
    """Of the model `blind`."""
    inputs = [[torch.randn(3)], [torch.randn(3)]]
    torch.save({"weights": {}, "inputs": inputs}, tmp_path / "material.pt")
    return tmp_path / "material.pt"


def test_the_next_one_waits_until_a_contestant_has_stopped_spinning(material, tmp_path):
    job = Job(stub("spins"), stub("blind"), 1, material)
    child = Child(job, tmp_path / "child", timeout=60)
    deadline = time.monotonic() + 60
    while not (tmp_path / "child" / "spins").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    start = time.monotonic()
    child.settle()
    assert time.monotonic() - start >= SPINNING
    time.sleep(1)
    start = time.monotonic()
    child.settle()
    assert time.monotonic() - start < SPINNING
    child.kill()


def test_an_interrupted_bench_leaves_no_contestant_behind(monkeypatch):
    def interrupted(child):
        assert child._process.poll() is None
        running.append(child._process)
        raise KeyboardInterrupt

    running = []
    monkeypatch.setattr(Peaks, "measure", peaks)
    monkeypatch.setattr(Child, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench([stub("small")], Settings((), threads=(1,)))
    assert [process.returncode for process in running] == [-signal.SIGKILL]


KILLED = """
import os, signal, sys
from pathlib import Path
from nimble.bench.child import Child
from nimble.bench.job import Job

material, stub, model = sys.argv[1:]
child = Child(Job(stub, model, 1, Path(material)), Path(material).parent / "child", 60)
print(child._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_contestants_die_with_a_referee_that_is_killed(material):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(material), stub("hangs"), stub("blind")],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    process, deadline = int(done.stdout), time.monotonic() + 20
    while b"bench.process" in command_line(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"bench.process" not in command_line(process)


def command_line(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
