"""What scheduling costs at run time, and what neighbours do to it.

Prints the cost of a task through the ATen fallback, of a call, with eight callers, and beside a
process that burns a core. `python bench/overhead.py`, on an otherwise idle machine.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial

import torch

import nimble
from nimble import zoo


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


def report(what: str, times: list[float], per: int = 1) -> float:
    median = statistics.median(times) / per
    ordered = sorted(times)
    low, high = (ordered[int(len(ordered) * q)] / per for q in (0.05, 0.95))
    print(f"{what:58} {median:10.3f} us  (5 % {low:.3f}, 95 % {high:.3f}, {len(times)} runs)")
    return median


def per_task() -> None:
    x, y = torch.randn(64), torch.randn(64)
    model = chain(200)
    for native in (False, True):
        engine = nimble.compile(model, (x, y), native_kernels=native, workers=1)
        kind = "native kernels" if native else "ATen fallback"
        report(
            f"a task in a chain of 200 adds of 64 floats, {kind}",
            times_us(partial(engine, x, y)),
            200,
        )
    report("the same in eager PyTorch, 1 thread", times_us(lambda: model(x, y)), 200)
    empty = nimble.compile(lambda x: x + 1, (x,))
    report("a whole call of one task", times_us(lambda: empty(x)))


def eight_callers() -> None:
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

    one, eight = [], []
    for _ in range(5):
        one.append(throughput(1))
        eight.append(throughput(8))
    ratio = statistics.median(b / a for a, b in zip(one, eight, strict=True))
    print(
        f"{'calls a second, one caller':58} {statistics.median(one):10.1f}\n"
        f"{'calls a second, eight callers':58} {statistics.median(eight):10.1f}  ({ratio:.2f} x)"
    )


def burn() -> None:
    while True:
        pass


def beside_a_busy_process() -> None:
    for name in ("mobilenet_v2@96", "googlenet@64", "mlp"):
        model, args = zoo.build(name)
        engine = nimble.compile(model, args)
        quiet = report(f"{name}, quiet", times_us(partial(engine, *args)))
        neighbour = multiprocessing.get_context("fork").Process(target=burn, daemon=True)
        neighbour.start()
        try:
            time.sleep(0.3)
            busy = report(
                f"{name}, beside a process that burns a core", times_us(partial(engine, *args))
            )
        finally:
            neighbour.kill()
            neighbour.join()
        print(f"{'':58} {busy / quiet:10.2f} x")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    per_task()
    eight_callers()
    beside_a_busy_process()
