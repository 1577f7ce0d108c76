"""Runs a bench: starts the contestants, checks their answers, times them in turn."""

from __future__ import annotations

import platform
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nimble import _core
from nimble.bench.busy import busy_processes
from nimble.bench.child import Child, LostError
from nimble.bench.contestants import NIMBLE, ON_GPU, check_names
from nimble.bench.job import MEMORY, OVERHEAD, ROUND, Job, Loaded, unpack
from nimble.bench.limits import Peaks, Work
from nimble.bench.result import Network, Result, Row
from nimble.bench.statistics import Ratio, Summary, median, quietest
from nimble.bench.training import make
from nimble.bench.verify import Exam
from nimble.compare import one_thread
from nimble.devices.cpu import this_cpu
from nimble.devices.sim import Gpu
from nimble.errors import InputError
from nimble.targets import Made

FEWEST_ROUNDS = 5

Report = Callable[[str, int], None]
"""Told what happens now, and how many steps are behind."""


@dataclass(frozen=True)
class Settings:
    against: tuple[str, ...] = ("eager",)
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 100
    seconds: float = 25.0
    """Rounds of a network stop after this long, but not before FEWEST_ROUNDS."""
    timeout: float = 120.0
    """For any single answer of a contestant; compiling is one."""
    busy: int = 0
    """Other processes that keep a core busy each while contestants are timed."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_names(self.against)
        if not self.threads or min(self.threads) < 1:
            given = ", ".join(map(str, self.threads))
            raise InputError(f"threads {given}: expected numbers from 1 up")
        if self.rounds < 1 or self.timeout <= 0:
            raise InputError("expected at least one round, and a time limit above zero")
        if self.device != "cpu":
            self._check_gpu()
        if self.busy < 0:
            raise InputError(f"{self.busy} busy processes: expected 0 or more")

    def _check_gpu(self) -> None:
        if self.device.partition(":")[0] != "cuda":
            raise InputError(f"--device {self.device}: expected cpu or cuda")
        other = [name for name in self.against if ":" not in name and name not in ON_GPU]
        if other:
            raise InputError(
                f"on a GPU only {', '.join(ON_GPU)} or file.py:load of your own can be timed "
                f"beside Nimble, not {', '.join(other)}"
            )
        self.gpu()

    def gpu(self) -> Gpu:
        """DeviceError, if there is none."""
        from nimble.devices.cuda.torch_cuda import TorchCuda

        return TorchCuda(torch.device(self.device)).gpu()

    @property
    def contestants(self) -> list[str]:
        return list(dict.fromkeys((NIMBLE, *self.against)))

    def steps(self, models: int) -> int:
        children = len(self.contestants) * len(self.threads)
        return len(self.threads) + models * (1 + children + self.rounds)


def bench(
    models: Sequence[str],
    settings: Settings,
    report: Report = lambda *_: None,
    keep: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Time every contestant on every model. Models and contestants that fail stay in the rows.

    `keep` is handed what is known after each model, so that a bench cut off is not lost.
    """
    rows: list[Row] = []
    networks: list[Network] = []
    with tempfile.TemporaryDirectory(prefix="nimble-bench-") as name:
        folder = Path(name)
        peaks = []
        if settings.device != "cpu":
            gpu = settings.gpu()
            peaks.append(Peaks(0, gpu.fp32_tflops * 1e12, {1: gpu.bandwidth}))
        for threads in settings.threads if settings.device == "cpu" else ():
            report(f"what this machine can do with {_threads(threads)}", 0)
            peaks.append(Peaks.measure(threads, folder))
            report("", 1)
        result = Result(_machine(peaks, settings), (), ())
        for number, model in enumerate(models):
            try:
                match = _Match.of(model, settings, folder / str(number), report)
            except Exception as error:
                report("", 1 + len(settings.contestants) * len(settings.threads) + settings.rounds)
                rows += _refused(model, settings, error)
            else:
                network = _network(match, peaks)
                networks.append(network)
                rows += [_of_limit(row, network) for row in match.run()]
            result = replace(result, networks=tuple(networks), rows=tuple(rows))
            keep(result)
    return result


@dataclass
class _Entry:
    """A contestant with a number of threads, and what is known of it so far."""

    row: Row
    child: Child | None = None
    rounds: list[list[int]] = field(default_factory=list)

    def lose(self, reason: str) -> None:
        """Out of the match, with no figure left that could be mistaken for a result."""
        row = self.row
        self.row = Row(row.model, row.contestant, row.threads, False, reason)
        self.rounds = []
        self.stop()

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None

    def medians(self) -> list[float]:
        return [median(times) for times in self.rounds]

    def median_of(self, rounds: Sequence[int]) -> float:
        medians = self.medians()
        return median([medians[i] for i in rounds])


@dataclass
class _Match:
    """All contestants on one model."""

    made: Made
    exam: Exam
    settings: Settings
    folder: Path
    report: Report
    work: Work

    @staticmethod
    def of(model: str, settings: Settings, folder: Path, report: Report) -> _Match:
        report(f"{model}: what eager PyTorch answers, in double precision", 0)
        torch.manual_seed(0)
        with one_thread():
            made = make(model)
        exam = Exam.of(made)
        work = Work.of(made, exam)
        folder.mkdir()
        weights = made.model.state_dict() if isinstance(made.model, nn.Module) else {}
        torch.save({"weights": weights, "inputs": list(exam.inputs)}, folder / "material.pt")
        report("", 1)
        return _Match(made, exam, settings, folder, report, work)

    def run(self) -> list[Row]:
        entries = [
            _Entry(Row(self.made.name, contestant, threads, ok=True))
            for contestant in self.settings.contestants
            for threads in self.settings.threads
        ]
        with _stopped_afterwards(entries):
            for entry in entries:
                self._enter(entry)
            with busy_processes(self.settings.busy):
                self._rounds(entries)
            for entry in entries:
                self._leave(entry)
        shutil.rmtree(self.folder, ignore_errors=True)
        _rate(entries)
        return [entry.row for entry in entries]

    def _enter(self, entry: _Entry) -> None:
        """Start a contestant, let it load, and compare its answers."""
        row = entry.row
        with_threads = f"{row.contestant} with {_threads(row.threads)}"
        self.report(f"{row.model}: {with_threads} loads", 0)
        job = Job(
            row.contestant,
            row.model,
            row.threads,
            self.folder / "material.pt",
            self.settings.device,
        )
        folder = self.folder / f"{self.settings.contestants.index(row.contestant)}-{row.threads}"
        try:
            entry.child = Child(job, folder, self.settings.timeout)
            loaded: Loaded = entry.child.receive()
            answers = [unpack(answer) for answer in loaded.answers]
            entry.row = replace(row, compile_s=loaded.compile_s, first_ms=loaded.first_ms)
            if why := self.exam.wrong(answers):
                entry.lose(why)
            else:
                entry.row = replace(entry.row, error=self.exam.error(answers))
        except LostError as lost:
            entry.lose(str(lost))
        self.report("", 1)

    def _rounds(self, entries: Sequence[_Entry]) -> None:
        order = random.Random(0)
        end = time.monotonic() + self.settings.seconds
        for number in range(self.settings.rounds):
            alive = [entry for entry in entries if entry.child is not None]
            late = time.monotonic() > end and number >= FEWEST_ROUNDS
            if late or not alive:
                self.report("", self.settings.rounds - number)
                return
            self.report(f"{self.made.name}: round {number + 1} of {self.settings.rounds}", 0)
            for entry in order.sample(alive, len(alive)):
                times = _ask(entry, ROUND)
                if times is not None:
                    entry.rounds.append(times)
                if entry.child is not None:
                    entry.child.settle()
            self.report("", 1)

    def _leave(self, entry: _Entry) -> None:
        # In this order: looking for the overhead takes memory.
        held, overhead = _ask(entry, MEMORY), _ask(entry, OVERHEAD)
        entry.stop()
        if entry.row.ok and held is not None:
            entry.row = replace(entry.row, peak_mb=held[0], running_mb=held[1])
        if entry.row.ok and overhead is not None:
            entry.row = replace(
                entry.row,
                overhead_ms=overhead.ms,
                overhead_share=overhead.share,
                call_ms=overhead.call_ms,
            )


def _ask(entry: _Entry, question: str) -> Any:
    if entry.child is None:
        return None
    try:
        return entry.child.ask(question)
    except LostError as lost:
        entry.lose(str(lost))
        return None


@contextmanager
def _stopped_afterwards(entries: Sequence[_Entry]) -> Iterator[None]:
    with ExitStack() as stack:
        for entry in entries:
            stack.callback(entry.stop)
        yield


def _rate(entries: Sequence[_Entry]) -> None:
    """Fill in the times, each contestant's better setting, and the ratios to Nimble's."""
    for entry in entries:
        if entry.row.ok:
            times = [ns for round in entry.rounds for ns in round]
            s = Summary.of(times)
            entry.row = replace(
                entry.row, median_ms=s.median, min_ms=s.minimum, p99_ms=s.p99,
                spread=s.spread, calls=len(times),
            )  # fmt: skip
    timed = [entry.medians() for entry in entries if entry.row.ok]
    quiet = quietest(timed, FEWEST_ROUNDS) if timed else []
    better: dict[str, _Entry] = {}
    for entry in (entry for entry in entries if entry.row.ok):
        best = better.setdefault(entry.row.contestant, entry)
        if entry.median_of(quiet) < best.median_of(quiet):
            better[entry.row.contestant] = entry
    for entry in entries:
        if entry.row.contestant in better:
            entry.row = replace(entry.row, best=better[entry.row.contestant].row.threads)
        if entry.row.ok and NIMBLE in better:
            theirs, ours = entry.medians(), better[NIMBLE].medians()
            ratio = Ratio.of([theirs[i] / ours[i] for i in quiet])
            entry.row = replace(
                entry.row, ratio=ratio.median, ratio_low=ratio.low, ratio_high=ratio.high
            )


def _network(match: _Match, peaks: Sequence[Peaks]) -> Network:
    work = match.work
    return Network(
        model=match.made.name,
        flops=work.flops,
        bytes=work.bytes,
        compute_ms=1e3 * work.flops / max(p.flops for p in peaks),
        memory_ms=1e3 * work.bytes / max(p.bandwidth_for(work.bytes) for p in peaks),
        allowed_error=match.exam.allowed,
    )


def _of_limit(row: Row, network: Network) -> Row:
    if row.median_ms is None or not network.limit_ms:
        return row
    return replace(row, of_limit=row.median_ms / network.limit_ms)


def _refused(model: str, settings: Settings, error: Exception) -> list[Row]:
    text = str(error).strip().partition("\n")[0].removeprefix(f"{model}: ")
    known = isinstance(error, InputError)
    reason = f"the model: {text}" if known else f"the model raised {type(error).__name__}: {text}"
    return [
        Row(model, contestant, threads, False, reason)
        for contestant in settings.contestants
        for threads in settings.threads
    ]


def _machine(peaks: Sequence[Peaks], settings: Settings) -> dict[str, Any]:
    return {
        "cpu": this_cpu() if settings.device == "cpu" else settings.gpu().name,
        "cores": _core.usable_cores(),
        "busy": settings.busy,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peaks": [
            {
                "threads": p.threads,
                "gflops": p.flops / 1e9,
                "gb_per_s": {str(size): speed / 1e9 for size, speed in p.bandwidth.items()},
            }
            for p in peaks
        ],
    }


def _threads(number: int) -> str:
    return f"{number} thread" if number == 1 else f"{number} threads"
