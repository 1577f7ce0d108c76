"""A contestant in a process of its own: it loads, answers, then sleeps until it is asked to run.

Started as `python -m nimble.bench.process FD PARENT JOB...` by `child.py`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nimble.bench.contestants import MissingError, Run, contestant
from nimble.bench.job import MEMORY, OVERHEAD, ROUND, Failed, Job, Loaded, pack
from nimble.bench.training import is_training, make
from nimble.capture.structure import flatten, unflatten
from nimble.targets import Made

WARM_NS, WARM_CALLS = 5_000_000, 2
"""Calls at the start of a turn that do not count, at least so long and so many: caches are cold,
the core is slow and helper threads asleep."""
TIMED_NS, TIMED_CALLS = 10_000_000, 1
_PR_SET_PDEATHSIG = 1


def main(fd: int, parent: int, job: Job) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return None
    with Connection(fd) as referee, torch.no_grad():
        try:
            run, inputs, loaded = _load(job, wait := _waiting(job.device))
        except MissingError as error:
            return referee.send(Failed(str(error)))
        except ModuleNotFoundError as error:
            return referee.send(Failed(f"not installed: {error.name}"))
        except Exception as error:
            return referee.send(Failed(f"raised {_in_a_line(error)}"))
        referee.send(loaded)
        gc.collect()
        gc.freeze()
        while True:
            try:
                question = referee.recv()
            except EOFError:
                return None
            try:
                referee.send(_answer(question, run, inputs[0], wait))
            except Exception as error:
                referee.send(Failed(f"raised {_in_a_line(error)}"))


def _waiting(device: str) -> Callable[[], None]:
    """Waits until the device has done all that it was given."""
    if device == "cpu":
        return lambda: None
    from nimble.devices.cuda.torch_cuda import TorchCuda

    # Answers are compared with double precision, so nobody rounds to TF32.
    torch.backends.cudnn.allow_tf32 = False
    return TorchCuda(torch.device(device)).synchronize


def _load(job: Job, wait: Callable[[], None]) -> tuple[Run, list[list[torch.Tensor]], Loaded]:
    torch.set_num_threads(job.threads)
    load = contestant(job.contestant, is_training(job.target))
    torch.manual_seed(0)
    made = make(job.target)
    material = torch.load(job.material, weights_only=True)
    if isinstance(made.model, nn.Module):
        made.model.to(job.device)
    restore = _restore(made, material["weights"])
    restore()
    inputs: list[list[torch.Tensor]] = [
        [tensor.to(job.device) for tensor in tensors] for tensors in material["inputs"]
    ]
    structure = flatten((made.args, made.kwargs))[1]
    args, kwargs = unflatten(structure, [tensor.clone() for tensor in inputs[0]])
    start = time.perf_counter()
    run = load(made.model, args, kwargs, job.threads)
    wait()
    compiled = time.perf_counter() - start
    restore()
    first, second = ([tensor.clone() for tensor in tensors] for tensors in inputs)
    answer = getattr(run, "trial", run)
    torch.manual_seed(0)
    start = time.perf_counter()
    results = answer(first)
    wait()
    took = time.perf_counter() - start
    answers = [pack(list(_tensors(results)))]
    restore()
    torch.manual_seed(0)
    answers.append(pack(list(_tensors(answer(second)))))
    loaded = Loaded(compiled, (compiled + took) * 1e3, (answers[0], answers[1]))
    return run, inputs, loaded


def _restore(made: Made, weights: dict[str, torch.Tensor]) -> Callable[[], None]:
    """Puts back the weights and state that differ. Tensors that do not are left alone: writing
    them would make contestants that watch their weights start over."""
    mine = made.model.state_dict() if isinstance(made.model, nn.Module) else {}

    def restore() -> None:
        for name, tensor in mine.items():
            saved = weights[name].to(tensor.device)
            if not torch.equal(tensor, saved):
                tensor.copy_(saved)

    return restore


def _tensors(results: Any) -> Iterator[torch.Tensor]:
    """Results in order, as tensors."""
    if isinstance(results, np.ndarray):
        yield torch.from_numpy(np.ascontiguousarray(results))
    elif isinstance(results, (list, tuple)):
        for result in results:
            yield from _tensors(result)
    else:
        yield from (tensor.cpu() for tensor in flatten(results)[0])


def _answer(question: str, run: Run, tensors: list[torch.Tensor], wait: Callable[[], None]) -> Any:
    if question == ROUND:
        _HELD.forget()
        return _round(run, tensors, wait)
    if question == OVERHEAD:
        return run.overhead(tensors) if hasattr(run, "overhead") else None
    assert question == MEMORY, question
    return _HELD.most()


def _round(run: Run, tensors: list[torch.Tensor], wait: Callable[[], None]) -> list[int]:
    """Nanoseconds of each call."""
    gc.disable()
    try:
        _calls(run, tensors, wait, WARM_NS, WARM_CALLS)
        return _calls(run, tensors, wait, TIMED_NS, TIMED_CALLS)
    finally:
        gc.enable()


def _calls(
    run: Run, tensors: list[torch.Tensor], wait: Callable[[], None], ns: int, fewest: int
) -> list[int]:
    now = time.perf_counter_ns
    times: list[int] = []
    end = now() + ns
    while len(times) < fewest or now() < end:
        start = now()
        run(tensors)
        wait()
        times.append(now() - start)
    return times


class _Held:
    """The most memory this process held: ever, and in rounds. Not `ru_maxrss`, which inherits the
    parent's."""

    def __init__(self) -> None:
        self._before = 0.0

    def forget(self) -> None:
        """What was held so far was held to compile."""
        if not self._before:
            self._before = self._most()
            Path("/proc/self/clear_refs").write_text("5")

    def most(self) -> tuple[float, float]:
        running = self._most()
        return max(self._before, running), running

    def _most(self) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


_HELD = _Held()


def _in_a_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


if __name__ == "__main__":
    fd, parent, name, target, threads, material, device = sys.argv[1:]
    main(int(fd), int(parent), Job(name, target, int(threads), Path(material), device))
