"""What it takes to begin: seconds to compile, beside torch.export, and the memory of a process.

`make starts`, on an otherwise idle machine; writes the table into docs/performance.md. Every figure
is of a process of its own, the best of three. A file is loaded twice: the first process on a
machine checks it and remembers that it did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from marks import rewrite
from rich.progress import track

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
NETWORKS = (
    "mobilenet_v2@32",
    "mobilenet_v2",
    "nasnet_a_mobile",
    "resnet50",
    "bert_tiny",
    "bert_base",
)
TIMES = 3
_BEGIN = """
import json, sys, time
from pathlib import Path
import torch
from nimble import zoo
def told(**more):
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"peak": peak, **more}))
name, file = sys.argv[1:]
"""
_MODEL = "model, args = zoo.build(name)\nstart = time.perf_counter()\n"
PROGRAMS = {
    "eager": _MODEL + "with torch.no_grad():\n    [model(*args) for _ in range(3)]\ntold()",
    "export": _MODEL + "torch.export.export(model, args)\ntold(s=time.perf_counter() - start)",
    "compile": _MODEL
    + """import nimble
engine = nimble.compile(model, args)
took = time.perf_counter() - start
engine(*args)
told(s=took)
engine.save(file)
torch.save(args, file + ".args")""",
    "load": """args = torch.load(file + ".args")
start = time.perf_counter()
import nimble
engine = nimble.load(file)
took = time.perf_counter() - start
engine(*args)
told(s=took)""",
}


def run(what: str, name: str, file: Path, cache: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + PROGRAMS[what], name, str(file)],
        env={**os.environ, "NIMBLE_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def row(name: str, folder: Path) -> str:
    found: dict[str, list[dict[str, float]]] = {}
    for turn in range(TIMES):
        cache, file = folder / f"{name}{turn}", folder / f"{name}.nimble"
        for what, program in (
            ("eager", "eager"), ("export", "export"), ("cold", "compile"), ("warm", "compile"),
            ("first load", "load"), ("load", "load"),
        ):  # fmt: skip
            found.setdefault(what, []).append(run(program, name, file, cache))
    seconds = {k: min(r.get("s", 0.0) for r in runs) for k, runs in found.items()}
    peak = {k: min(r["peak"] for r in runs) for k, runs in found.items()}
    beyond = [seconds[how] - seconds["export"] for how in ("cold", "warm")]
    cells = [f"{seconds[k]:.1f}" for k in ("export", "cold", "warm")]
    cells += [f"{more:+.1f}" for more in beyond]
    cells += [f"{seconds['load']:.1f}", *(f"{peak[k]:.0f}" for k in ("eager", "warm", "load"))]
    return f"| {name} | {' | '.join(cells)} |"


def rows() -> Iterator[str]:
    yield (
        "| network | torch.export s | compile, cold | compile, warm | cold beyond export "
        "| warm beyond export | load | eager MB | compiled MB | loaded MB |"
    )
    yield "|---" * 10 + "|"
    with tempfile.TemporaryDirectory() as folder:
        for name in track(NETWORKS, description="starting"):
            yield row(name, Path(folder))


if __name__ == "__main__":
    rewrite(PAGE, "starts", list(rows()))
