"""What calls cost, and what neighbours do to them: the figures of README.md.

`python bench/calls.py`, on an otherwise idle machine: the cost of a task through the ATen fallback,
of a call, of loading, with eight callers, and beside a process that burns a core.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

import nimble
from nimble import zoo
from nimble.bench.busy import busy_processes

Figure = tuple[str, str]


def figures() -> Iterator[Figure]:
    """(what, how much), measured now."""
    with torch.no_grad():
        yield from per_task()
        yield from loading()
        yield from eight_callers()
        yield from beside_a_busy_process()


def chain(tasks: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(tasks):
            x = x + y
        return x

    return run


def times_us(call: Callable[[], object], seconds: float = 2.0) -> list[float]:
    end, times = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def spread(times: list[float], per: int = 1) -> str:
    """Median and the middle nine tenths, in microseconds or milliseconds."""
    ordered = sorted(times)
    low, middle, high = (ordered[int(len(ordered) * q)] / per for q in (0.05, 0.5, 0.95))
    if middle >= 1000:
        return f"{middle / 1000:.2f} ms ({low / 1000:.2f} to {high / 1000:.2f})"
    return f"{middle:.2f} µs ({low:.2f} to {high:.2f})"


def per_task() -> Iterator[Figure]:
    x, y = torch.randn(64), torch.randn(64)
    model = chain(200)
    what = "a task in a chain of 200 adds of 64 floats"
    for native in (False, True):
        engine = nimble.compile(model, (x, y), native_kernels=native, workers=1)
        kind = "native kernels" if native else "ATen fallback"
        yield f"{what}, {kind}", spread(times_us(partial(engine, x, y)), 200)
    yield f"{what}, eager PyTorch", spread(times_us(partial(model, x, y)), 200)
    engine = nimble.compile(lambda x: x + 1, (x,))
    yield "a whole call of one task", spread(times_us(partial(engine, x)))


def eight_callers() -> Iterator[Figure]:
    model, args = zoo.build("mobilenet_v2@96")
    engine = nimble.compile(model, args)

    def throughput(threads: int) -> float:
        count, stop = [0] * threads, threading.Event()

        def work(number: int) -> None:
            while not stop.is_set():
                engine(*args)
                count[number] += 1

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        start = time.perf_counter()
        time.sleep(2)
        stop.set()
        for worker in workers:
            worker.join()
        return sum(count) / (time.perf_counter() - start)

    ratios = sorted(throughput(8) / throughput(1) for _ in range(5))
    yield (
        "throughput of eight callers over one, mobilenet_v2@96",
        f"{statistics.median(ratios):.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})",
    )


def loading() -> Iterator[Figure]:
    """Every round compiles, saves and loads once."""
    model, args = zoo.build("googlenet@64")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nimble"
        for _ in range(5):
            start = time.perf_counter()
            nimble.compile(model, args).save(path)
            between = time.perf_counter()
            nimble.load(path)
            ratios.append((time.perf_counter() - between) / (between - start))
    ratios.sort()
    yield (
        "loading over compiling and saving, googlenet@64",
        f"{statistics.median(ratios):.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})",
    )


def beside_a_busy_process() -> Iterator[Figure]:
    for name in ("mobilenet_v2@96", "googlenet@64", "mlp"):
        model, args = zoo.build(name)
        engine = nimble.compile(model, args)
        quiet = times_us(partial(engine, *args))
        with busy_processes(1):
            time.sleep(0.3)
            busy = times_us(partial(engine, *args))
        ratio = statistics.median(busy) / statistics.median(quiet)
        yield f"{name}, quiet", spread(quiet)
        yield f"{name}, beside a process that burns a core", f"{spread(busy)}: {ratio:.2f} x"


if __name__ == "__main__":
    for what, much in figures():
        print(f"{what:64} {much}")
