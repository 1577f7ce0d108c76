"""Algorithms are chosen by measuring, and what was found is remembered on disk."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nimble
from nimble.choose import _preferred, _why
from nimble.company import Company
from nimble.devices.cpu import key_of, recall, remember
from nimble.errors import InputError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def always(monkeypatch, cache):
    """Winograd's algorithm wherever it can be used, faster or not."""
    monkeypatch.setattr("nimble.choose._CLEARLY", float("inf"))


class Branches(nn.Module):
    """Convolutions by 3 x 3 with all that can be fused, joined by a concatenation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(8, 24, 3, padding=1), nn.Conv2d(24, 40, 3, bias=False)
        self.c = nn.Conv2d(24, 24, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.a(x))
        return torch.cat([self.b(y), nn.functional.silu(self.c(y) + y)[:, :, 1:-1, 1:-1]], 1)


def ops(engine):
    return {task.op for task in engine.plans[-1].graph.tasks}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("tune", ["fast", "full"])
def test_winograd_gives_what_eager_gives(always, batch, workers, tune):
    model, x = Branches().eval(), torch.randn(batch, 8, 26, 19)
    engine = nimble.compile(model, (x,), workers=workers, tune=tune)
    assert "nimble.winograd" in ops(engine)
    assert "nimble.convolution" not in ops(engine)
    torch.testing.assert_close(engine(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        model.b.weight.mul_(2)
    torch.testing.assert_close(engine(x), model(x).detach(), rtol=1e-4, atol=1e-4)


def test_what_gains_nothing_stays_as_it_is(cache, monkeypatch):
    monkeypatch.setattr("nimble.choose._CLEARLY", 0.0)
    engine = nimble.compile(Branches(), (torch.randn(1, 8, 26, 19),))
    assert "nimble.winograd" not in ops(engine)


def test_off_tries_nothing_and_leaves_no_trace(cache):
    engine = nimble.compile(Branches(), (torch.randn(1, 8, 26, 19),), tune="off")
    assert "nimble.winograd" not in ops(engine)
    assert not cache.exists()


def test_an_unknown_way_to_tune_is_refused():
    with pytest.raises(InputError, match="tune='best': expected one of fast, full, off"):
        nimble.compile(Branches(), (torch.randn(1, 8, 26, 19),), tune="best")


def test_a_saved_engine_keeps_its_algorithms(always, tmp_path):
    model, x = Branches().eval(), torch.randn(1, 8, 26, 19)
    engine = nimble.compile(model, (x,))
    engine.save(tmp_path / "model.nimble")
    loaded = nimble.load(tmp_path / "model.nimble")
    assert "nimble.winograd" in ops(loaded)
    assert torch.equal(loaded(x), engine(x))


def test_the_second_compilation_measures_nothing(cache, monkeypatch):
    monkeypatch.setattr("nimble.choose._LOUD", float("inf"))  # Other tests may be at work.
    model, x = Branches().eval(), torch.randn(1, 8, 26, 19)
    first = nimble.compile(model, (x,))
    assert len(list(cache.glob("*.json"))) == 1

    def refuse(*args):
        raise AssertionError("measured")

    monkeypatch.setattr("nimble.choose.with_measured_costs", refuse)
    monkeypatch.setattr("nimble.choose.times_ns", refuse)
    second = nimble.compile(model, (x,))
    assert second.plans[0].schedule == first.plans[0].schedule
    assert second.plans[0].choice == first.plans[0].choice
    torch.testing.assert_close(second(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError, match="measured"):
        nimble.compile(model, (torch.randn(2, 8, 26, 19),))


@pytest.mark.parametrize("others", [0.0, 1.0])
def test_what_was_measured_beside_others_is_measured_again_once_they_are_gone(
    cache, monkeypatch, others
):
    monkeypatch.setattr("nimble.company.Company.cores", lambda self: 1.0)
    model, x = Branches().eval(), torch.randn(1, 8, 26, 19)
    assert "other processes kept 1.0 cores busy" in nimble.compile(model, (x,)).explain()
    (file,) = cache.glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "choice": "the old one"}))
    monkeypatch.setattr("nimble.company.Company.cores", lambda self: others)
    choice = nimble.compile(model, (x,)).plans[0].choice
    assert ("the old one" in choice) == (others > 0)
    assert ("other processes" in choice) == (others > 0)
    assert json.loads(file.read_text())["company"] == others


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not tell")
def test_others_are_noticed_and_oneself_is_not():
    core = min(os.sched_getaffinity(0))
    burning = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", burning], stdout=subprocess.PIPE) as burner:
        try:
            burner.stdout.readline()
            company, cpu = Company(), _cpu_seconds(burner.pid)
            time.sleep(1)
            beside = company.cores()
            assert beside > 0.9 * (_cpu_seconds(burner.pid) - cpu) - 0.05
        finally:
            burner.kill()
    company, start, mine = Company(), time.perf_counter(), time.process_time()
    while time.perf_counter() < start + 1:
        pass
    mine = time.process_time() - mine
    assert company.cores() < len(os.sched_getaffinity(0)) - 0.9 * mine + 0.05


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _changed(text, key, value):
    data = json.loads(text)
    return json.dumps({**data, "schedule": {**data["schedule"], key: value}})


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: "null",
        lambda text: json.dumps({**json.loads(text), "costs": []}),
        lambda text: json.dumps({**json.loads(text), "schedule": 7}),
        lambda text: json.dumps({**json.loads(text), "schedule": {}}),
        lambda text: _changed(text, "streams", [[0], [0]]),
        lambda text: _changed(text, "streams", "x"),
        lambda text: _changed(text, "waits", [[0]]),
        lambda text: _changed(text, "offsets", [None]),
        lambda text: _changed(text, "arena_bytes", -1),
        lambda text: _changed(text, "arena_bytes", "x"),
        lambda text: _changed(text, "decision", {}),
        lambda text: json.dumps({**json.loads(text), "cut": "x"}),
        lambda text: json.dumps({**json.loads(text), "costs": ["x"] * 9}),
        lambda text: json.dumps(
            {**json.loads(text), "sides": dict.fromkeys(("convolution", "convolution_1"), 3)}
        ),
        lambda text: json.dumps({**json.loads(text), "sides": [1]}),
        lambda text: json.dumps({**json.loads(text), "more": 1}),
        lambda text: json.dumps({**json.loads(text), "measured_ns": "x"}),
        lambda text: json.dumps({**json.loads(text), "choice": 1}),
        lambda text: json.dumps({**json.loads(text), "company": "x"}),
    ],
)
def test_a_damaged_memory_is_measured_again(cache, damage):
    model, x = Branches().eval(), torch.randn(1, 8, 26, 19)
    nimble.compile(model, (x,))
    (file,) = cache.glob("*.json")
    whole = json.loads(file.read_text())
    file.write_text(damage(file.read_text()))
    engine = nimble.compile(model, (x,))
    torch.testing.assert_close(engine(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    assert "measured" in engine.explain()
    assert json.loads(file.read_text()).keys() == whole.keys()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NIMBLE_CACHE", str(tmp_path / "file"))
    x = torch.randn(3)
    assert torch.equal(nimble.compile(lambda x: x + 1, (x,))(x), x + 1)


def test_nothing_is_remembered_without_a_folder(monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE", "")
    remember("key", 1)
    assert recall("key") is None


def test_the_folder_is_where_caches_are(tmp_path, monkeypatch):
    monkeypatch.delenv("NIMBLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("key", [1, 2])
    assert recall("key") == [1, 2]
    assert (tmp_path / "nimble" / "key.json").exists()


def test_a_home_is_found_and_none_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    remember("key", 1)
    assert (tmp_path / "mine" / "key.json").exists()
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # As for a user without a home.
    remember("key", 2)
    assert recall("key") is None
    assert not os.path.exists("~")


def test_the_oldest_are_forgotten(cache, monkeypatch):
    monkeypatch.setattr("nimble.devices.cpu.memo._MOST_FILES", 3)
    for number in range(5):
        remember(f"key{number}", number)
        os.utime(cache / f"key{number}.json", (number, number))
    remember("new", 1)
    assert {file.stem for file in cache.glob("*.json")} == {"key3", "key4", "new"}


def test_the_key_changes_with_what_is_measured():
    assert key_of([1, "a"]) == key_of([1, "a"])
    assert key_of([1, "a"]) != key_of([2, "a"])


_WRITER = """
import sys
from nimble.devices.cpu import recall, remember
for n in range(200):
    remember("key", [sys.argv[1]] * 2000)
    found = recall("key")
    assert found and len(found) == 2000 and len(set(found)) == 1, found
"""


def test_processes_may_write_at_once(cache):
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert {file.name for file in cache.iterdir()} == {"key.json"}


@pytest.mark.parametrize(
    ("arenas", "times", "kept"),
    [
        ((0, 0), (100, 101), 0),
        ((0, 0), (101, 100), 1),
        ((1000, 1000), (101, 100), 1),
        ((800, 1000), (101, 100), 0),
        ((950, 1000), (101, 100), 1),
        ((800, 1000), (110, 100), 1),
    ],
)
def test_clearly_less_memory_is_worth_a_percent(arenas, times, kept):
    some = nimble.compile(lambda x: x + 1, (torch.ones(2),)).plans[0].schedule
    plans = [replace(some, arena_bytes=size) for size in arenas]
    taken = [[time, 2 * time] for time in times]
    assert _preferred(plans, taken) == kept
    assert ("less memory" in _why(plans, taken, kept)) == (times[kept] > min(times))
