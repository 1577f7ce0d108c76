"""A replay runs every kernel on one thread, and leaves the caller's settings as they were."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest
import torch
from aten_program import Program

NO_NEW_THREADS = """
import os, torch
from nimble import _aten
torch.set_num_threads(4)
def threads(): return len(os.listdir("/proc/self/task"))
table = _aten.Table(3, 3)
for i in range(3):
    table.memory(i, torch.empty(512, 512))
    table.value(i, i, torch.float32, [512, 512], [512, 1], 0)
a, b = _aten.Ref(0), _aten.Ref(1)
calls = [
    table.call("aten::add", "Tensor", [a, b], {}, [2]),
    table.call("aten::mm", "", [a, b], {}, [2]),
    table.call("aten::softmax", "int", [a, 1], {}, [2]),
    table.call("aten::linear", "", [a, b], {}, [2]),
    table.call("aten::layer_norm", "", [a, [512]], {}, [2]),
]
before = threads()
table.run(calls)
print(threads() - before, torch.get_num_threads())
torch.ones(512, 512)
print(threads() > before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's /proc")
def test_no_thread_is_started_although_torch_may_use_four() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_NEW_THREADS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "4", "True"]


def openmp_threads() -> int:
    return int(ctypes.CDLL(None).omp_get_max_threads())


def test_the_callers_thread_settings_are_as_before() -> None:
    program = negation()
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            affinity = os.sched_getaffinity(0)
            program(torch.ones(4))
            assert torch.get_num_threads() == count
            assert openmp_threads() == count
            assert os.sched_getaffinity(0) == affinity
    finally:
        torch.set_num_threads(before)


def test_a_new_thread_gets_its_own_settings_back() -> None:
    program = negation()
    before, seen = torch.get_num_threads(), []

    def call() -> None:
        program(torch.ones(4))
        seen.append(torch.get_num_threads())

    try:
        torch.set_num_threads(3)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert seen == [3]


def negation(streams: int = 1, tasks: int = 1) -> Program:
    program = Program()
    x = program.input(torch.empty(4))
    for _ in range(tasks):
        program.call("neg", [x], program.output(4))
    return program.plan(streams=streams)


def test_all_threads_flush_denormal_numbers_as_the_caller_does() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    program = Program()
    x = program.input(torch.empty(4))
    for _ in range(6):
        program.call("mul.Tensor", [x, 0.5], program.output(4))
    program.plan(streams=2)
    tiny = torch.full((4,), torch.finfo(torch.float32).tiny)
    try:
        assert all((y == 0).all() for y in program(tiny))
        torch.set_flush_denormal(False)
        assert all((y != 0).all() for y in program(tiny))
    finally:
        torch.set_flush_denormal(False)
