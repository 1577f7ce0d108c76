"""What is loaded when: the cluster never needs PyTorch, and names stay what they are."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nimble

CLUSTER = """
import sys
from nimble.cli.entry import main

sys.argv = ["nimble", "cluster", *{words!r}]
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "torch")
assert not loaded, loaded
"""


def python(code: str) -> str:
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["simulate", "--cluster", "2x2x4", "--jobs", "10"],
        ["compare", "--cluster", "2x2x4", "--jobs", "10", "--policies", "fifo,dally"],
    ],
)
def test_the_cluster_starts_without_torch(words):
    assert python(CLUSTER.format(words=words))


def test_importing_nimble_does_not_load_torch():
    python("import sys, nimble, nimble.cluster\nassert 'torch' not in sys.modules")


@pytest.mark.parametrize(
    "first",
    [
        "import nimble.schedule",
        "from nimble.schedule import Schedule",
        "import nimble.schedule.build",
        "from nimble import schedule",
        "nimble.compile",
        "pass",
    ],
)
def test_schedule_is_the_function_whatever_was_imported_first(first):
    python(
        f"import nimble\n{first}\n"
        "from nimble.graph import Graph\n"
        "assert nimble.schedule.__name__ == 'schedule' and callable(nimble.schedule)\n"
        "import nimble.schedule as called\n"
        "assert called is nimble.schedule\n"
        "from nimble.schedule.build import schedule as built\n"
        "assert nimble.schedule is built"
    )


def test_every_public_name_is_there_and_listed():
    python(
        "import nimble\n"
        "assert set(nimble.__all__) <= set(dir(nimble))\n"
        "for name in nimble.__all__: assert callable(getattr(nimble, name)), name"
    )
    python("import nimble\nnimble.errors.CaptureError, nimble.cluster.simulate, nimble.zoo.names")
    with pytest.raises(AttributeError, match="no attribute 'compiel'"):
        nimble.compiel  # noqa: B018


def test_what_is_compiled_against_torch_is_checked_before_it_loads():
    """Whichever module needs it first."""
    python(
        "import torch\n"
        "torch.__version__ = '2.14.0'\n"
        "try:\n"
        "    import nimble.signature\n"
        "except ImportError as error:\n"
        "    assert 'Nimble supports torch 2.13.x' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('it loaded')"
    )


SAVED = """
import torch, nimble
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
nimble.compile(model, (torch.randn(2, 8),), tune="off").save({file!r})
"""
LOADED = """
import sys, torch, nimble
engine = nimble.load({file!r})
engine(torch.randn(2, 8))
loaded = [name for name in ("torch._dynamo", "sympy") if name in sys.modules]
print(*loaded)
"""


def test_a_loaded_engine_needs_no_tracer_once_it_was_checked(tmp_path, monkeypatch):
    """Which takes a second and 70 MB."""
    monkeypatch.setenv("NIMBLE_CACHE", str(tmp_path))
    file = str(tmp_path / "model.nimble")
    python(SAVED.format(file=file))
    python(LOADED.format(file=file))
    assert python(LOADED.format(file=file)).split() == []
