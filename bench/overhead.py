"""What scheduling costs at run time: a task, a wait, a call. `make overhead`, on an idle machine.

Empty tasks go straight onto a tape; then graphs of small additions run side by side through Nimble,
eager PyTorch and ONNX Runtime. All contestants of a row are measured in turn, round by round.
Writes docs/overhead.md.
"""

from __future__ import annotations

import ctypes
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

import nimble
from nimble import _core
from nimble.bench.overhead import EMPTY, timer_ns
from nimble.devices.cpu import this_cpu

PAGE = Path(__file__).parents[1] / "docs" / "overhead.md"
TASKS = (1, 10, 100, 1_000, 10_000)
NODES = (10, 100, 1_000)
ROUNDS = 15
Run = Callable[[], object]


# Measuring


def nanoseconds(runs: Sequence[Run], seconds: float = 0.02) -> list[list[float]]:
    """For each run its cost in every round; within a round one comes after the other."""
    counts = []
    for run in runs:
        run()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            run()
            count += 1
        counts.append(max(1, count))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for mine, run, count in zip(times, runs, counts, strict=True):
            start_ns = time.perf_counter_ns()
            for _ in range(count):
                run()
            mine.append((time.perf_counter_ns() - start_ns) / count)
    return times


def spread(times: Sequence[float], per: int = 1) -> str:
    """Median, and the middle eight tenths of the rounds."""
    low, *_, high = statistics.quantiles(times, n=10)
    middle = statistics.median(times)
    digits = 1 if middle / per < 100 else 0
    return f"{middle / per:.{digits}f} ({low / per:.{digits}f} to {high / per:.{digits}f})"


# Empty tasks on a tape


def chain(tasks: int, workers: int) -> _core.Tape:
    """Each task after the one before it; on two workers each on the other's stream."""
    tape = _core.Tape(streams=workers, tasks=tasks, slots=0)
    for task in range(tasks):
        if workers > 1 and task:
            tape.wait(task % workers, task - 1)
        tape.call(task % workers, task, EMPTY, 0)
    return tape


def fan_out(tasks: int, workers: int) -> _core.Tape:
    """All others after the first."""
    tape = _core.Tape(streams=workers, tasks=tasks, slots=0)
    tape.call(0, 0, EMPTY, 0)
    for task in range(1, tasks):
        stream = task % workers
        if stream and task < workers + 1:
            tape.wait(stream, 0)
        tape.call(stream, task, EMPTY, 0)
    return tape


def fan_in(tasks: int, workers: int) -> _core.Tape:
    """The last after all others."""
    tape = _core.Tape(streams=workers, tasks=tasks, slots=0)
    for task in range(tasks - 1):
        tape.call(task % workers, task, EMPTY, 0)
    for stream in range(1, min(workers, tasks - 1)):
        last = max(task for task in range(tasks - 1) if task % workers == stream)
        tape.wait(0, last)
    tape.call(0, tasks - 1, EMPTY, 0)
    return tape


def empty_tasks() -> Iterator[str]:
    yield "| graph | workers | " + " | ".join(f"{n:,} tasks" for n in TASKS) + " |"
    yield "|---|---|" + "---|" * len(TASKS)
    rows = [(make, workers) for make in (chain, fan_out, fan_in) for workers in (1, 2)]
    for make, workers in track(rows, "empty tasks", transient=True):
        _core.set_workers(workers)
        cells = []
        for tasks in TASKS:
            tape = make(tasks, workers)
            tape.finish()
            cells.append(spread(nanoseconds([tape.replay])[0], tasks))
        yield f"| {make.__name__.replace('_', '-')} | {workers} | " + " | ".join(cells) + " |"
    _core.set_workers(_core.usable_cores())


def waits_and_calls() -> Iterator[str]:
    """A wait costs a thread what a chain takes more when every task is on the other's stream."""
    tasks = 1_000
    apart, together = chain(tasks, 2), chain(tasks, 1)
    for tape in (apart, together):
        tape.finish()
    x = torch.randn(64)
    engine = nimble.compile(lambda x: x + 1, (x,))
    one = _core.Tape(streams=1, tasks=1, slots=0)
    one.call(0, 0, EMPTY, 0)
    one.finish()
    runs: list[Run] = [apart.replay, together.replay, one.replay, partial(engine, x)]
    across, alone, replay, call = nanoseconds(runs)
    hop = [(a - b) / tasks for a, b in zip(across, alone, strict=True)]
    yield "| | ns |"
    yield "|---|---|"
    yield f"| a wait for a stream that the same thread runs | {spread(hop)} |"
    yield f"| a wait for a task on another core | {across_cores()} |"
    yield f"| starting and ending a replay, from Python | {spread(replay)} |"
    yield f"| `engine(x)` of one task, result allocated | {spread(call)} |"


def across_cores(stages: int = 500) -> str:
    """From the end of a task to the start of one that waited for it on another core. Two streams of
    tasks that take microseconds, each after the other's last: so long that no thread runs both."""
    strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0
    text = ctypes.create_string_buffer(b"x" * 100_000)
    tape = _core.Tape(streams=2, tasks=2 * stages, slots=0)
    for task in range(2 * stages):
        if task > 1:
            tape.wait(task % 2, task - 2 + (1 if task % 2 == 0 else -1))
        tape.call(task % 2, task, strlen, ctypes.addressof(text))
    tape.finish()
    timer, gaps = timer_ns(), []
    for _ in range(ROUNDS):
        spans = sorted(tape.record())
        pairs = list(zip(spans[::2], spans[1::2], strict=True))
        for before, now in pairwise(pairs):
            if all(first[1] != second[1] for first, second in (before, now)):
                last = max(before, key=lambda span: span[3])
                other = next(span for span in now if span[1] != last[1])
                gaps.append(other[2] - last[3] - timer)
    often = len(gaps) >= ROUNDS * stages // 2
    return spread(gaps) if often else "not measured: the second core was busy"


# The same graph of additions, through each contestant

Graph = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def add_chain(x: torch.Tensor, y: torch.Tensor, nodes: int) -> torch.Tensor:
    for _ in range(nodes):
        x = x + y
    return x


def add_fan(x: torch.Tensor, y: torch.Tensor, nodes: int) -> torch.Tensor:
    """Half of the operators stand side by side; the others bring them together in a tree."""
    level = [x * (i + 0.5) for i in range(nodes // 2 - 1)] + [x + y]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [a + b for a, b in pairs] + level[len(level) // 2 * 2 :]
    return level[0]


class _Model(torch.nn.Module):
    def __init__(self, graph: Graph, nodes: int) -> None:
        super().__init__()
        self._graph, self._nodes = graph, nodes

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._graph(x, y, self._nodes)


def onnxruntime(model: _Model, x: torch.Tensor, y: torch.Tensor) -> Run:
    import onnxruntime as ort

    program = torch.onnx.export(model, (x, y), dynamo=True, verbose=False)
    assert program is not None
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(program.model_proto.SerializeToString(), options)
    feeds = dict(zip((i.name for i in session.get_inputs()), (x.numpy(), y.numpy()), strict=True))
    np.testing.assert_allclose(session.run(None, feeds)[0], model(x, y).numpy(), rtol=1e-4)
    return partial(session.run, None, feeds)


def operators() -> Iterator[str]:
    yield "| graph | operators | Nimble, native | Nimble, ATen | PyTorch eager | ONNX Runtime |"
    yield "|---|---|---|---|---|---|"
    x, y = torch.randn(64), torch.randn(64)
    rows = [(graph, nodes) for graph in (add_chain, add_fan) for nodes in NODES]
    for graph, nodes in track(rows, "operators", transient=True):
        model = _Model(graph, nodes).eval()
        runs: list[Run] = []
        tasks = []
        for native in (True, False):
            engine = nimble.compile(model, (x, y), native_kernels=native, workers=1, progress=False)
            torch.testing.assert_close(engine(x, y), model(x, y))
            runs.append(partial(engine, x, y))
            tasks.append(len(engine.plans[0].graph.tasks))
        count = engine.plans[0].captured_tasks
        runs.append(partial(model, x, y))
        missing = ""
        try:
            runs.append(onnxruntime(model, x, y))
        except ImportError as error:
            missing = f"not installed ({error.name})"
        cells = [spread(times, count) for times in nanoseconds(runs)]
        cells[:2] = [f"{cell}, tasks: {n:,}" for cell, n in zip(cells, tasks, strict=False)]
        cells += [missing] if missing else []
        yield f"| {graph.__name__.replace('_', ' ')} | {count:,} | " + " | ".join(cells) + " |"


INTRODUCTION = """# What scheduling costs at run time

Written by `make overhead` on {machine}. All figures are nanoseconds: the median of {rounds} rounds,
and the middle eight tenths of them.
"""
EMPTY_TASKS = """
## A task, empty
Per task of a replay from Python, so that a tape of one task shows what a replay costs. On two
workers a chain changes the stream at every task: each waits for one of the other stream. Tasks so
short are mostly run by one thread, which takes over a stream that holds up its own.
"""
OPERATORS = """
## An operator
Sums of 64 floats on one thread, per operator of the captured graph, the call from Python included.
Every contestant is given the same graph and gives the same answer. Nimble's own kernels take many
such operators at once, as the number of tasks shows; with ATen's, each is a task of its own, as it
is a call for PyTorch and a node for ONNX Runtime.
"""


def main() -> None:
    torch.set_num_threads(1)
    machine = (
        f"{this_cpu()}, {_core.usable_cores()} cores, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    with torch.no_grad():
        lines = [INTRODUCTION.format(machine=machine, rounds=ROUNDS) + EMPTY_TASKS, *empty_tasks()]
        lines += ["\n## A wait, a replay, a call\n", *waits_and_calls()]
        lines += [OPERATORS, *operators(), ""]
    PAGE.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
