"""Threads, processes, signals: an engine is safe wherever PyTorch users call it."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import nimble


def branches():
    torch.manual_seed(0)
    left, right = nn.Linear(64, 64), nn.Linear(64, 64)
    return (lambda x: (left(x).relu(), right(x).tanh())), torch.randn(16, 64)


def run(code: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_eight_threads_on_one_engine():
    model, x = branches()
    engine = nimble.compile(model, (x,))
    inputs = [torch.randn(16, 64) for _ in range(64)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for got, want in zip(pool.map(engine, inputs), expected, strict=True):
            torch.testing.assert_close(got, want)


def test_eight_threads_meet_new_signatures_at_once():
    engine = nimble.compile(lambda x: x * 2, (torch.ones(1),))
    with ThreadPoolExecutor(8) as pool:
        sizes = [n % 7 + 1 for n in range(40)]
        for size, got in zip(sizes, pool.map(lambda n: engine(torch.ones(n)), sizes), strict=True):
            assert got.tolist() == [2.0] * size
    assert len(engine.plans) == 7


def test_several_engines_at_once():
    made = [branches() for _ in range(4)]
    engines = [nimble.compile(model, (x,)) for model, x in made]

    def work(number):
        model, x = made[number]
        with torch.no_grad():
            for _ in range(50):
                torch.testing.assert_close(engines[number](x), model(x))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_the_callers_thread_settings_are_as_before():
    model, x = branches()
    engine = nimble.compile(model, (x,))
    affinity, threads = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        engine(x)
        assert torch.get_num_threads() == 2
        assert os.sched_getaffinity(0) == affinity
    finally:
        torch.set_num_threads(threads)


def test_modes_of_the_caller_are_neither_entered_nor_lost():
    from torch.utils.flop_counter import FlopCounterMode

    model, x = branches()
    engine = nimble.compile(model, (x,))
    expected = engine(x)
    with FlopCounterMode(display=False), torch.inference_mode():
        torch.testing.assert_close(engine(x), expected)
        assert torch.is_inference_mode_enabled()


_MAKE = """
    import os, signal, threading, time, torch, nimble
    left, right = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    model = lambda x: (left(x).relu(), right(x).tanh())
    x = torch.randn(16, 64)
    engine = nimble.compile(model, (x,))
    expected = engine(x)
"""


def test_fork_after_use():
    done = run(
        _MAKE
        + """
    child = os.fork()
    got = engine(x)
    ok = all(torch.equal(a, b) for a, b in zip(got, expected))
    if child == 0:
        os._exit(0 if ok else 3)
    assert ok
    assert os.waitpid(child, 0)[1] == 0
    """
    )
    assert done.returncode == 0, done.stderr


def test_fork_before_use_and_while_other_threads_replay():
    done = run(
        _MAKE
        + """
    stop = threading.Event()
    def work():
        while not stop.is_set():
            engine(x)
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    for _ in range(5):
        child = os.fork()
        if child == 0:
            got = engine(x)
            os._exit(0 if all(torch.equal(a, b) for a, b in zip(got, expected)) else 3)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    [t.join() for t in threads]
    """
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_leaves_the_engine_usable():
    model, x = branches()
    engine = nimble.compile(model, (x,))
    expected = engine(x)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in some shells
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            while True:
                engine(x)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    torch.testing.assert_close(engine(x), expected)


def test_deletion_during_interpreter_exit():
    done = run(
        _MAKE
        + """
    class Late:
        def __del__(self):
            engine(x)
    late = Late()
    # Kept: PyTorch itself aborts when a daemon thread frees a tensor while the interpreter ends.
    kept = []
    calls = lambda: [kept.append(engine(x)) for _ in range(2000)]
    threading.Thread(target=calls, daemon=True).start()
    """
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr


def test_an_idle_engine_burns_no_cpu():
    done = run(
        _MAKE
        + """
    for _ in range(100): engine(x)
    time.sleep(1)
    before = sum(os.times()[:2])
    time.sleep(1)
    print(sum(os.times()[:2]) - before)
    """
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 0.01


def test_more_workers_than_cores():
    model, x = branches()
    engine = nimble.compile(model, (x,), workers=7)
    with torch.no_grad():
        torch.testing.assert_close(engine(x), model(x))


def test_fork_while_another_thread_compiles_the_same_engine():
    done = run(
        """
        import os, threading
        import torch
        from torch import nn
        import nimble

        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
        x = torch.randn(2, 64)
        engine = nimble.compile(model, (x,), max_plans=1000)
        expected = engine(x)
        stop, compiling = threading.Event(), threading.Event()

        def compile_others():
            rows = 3
            while not stop.is_set():
                engine(torch.randn(rows, 64))
                compiling.set()
                rows += 1

        thread = threading.Thread(target=compile_others)
        thread.start()
        compiling.wait()
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if torch.equal(engine(x), expected) else 1)
            assert os.waitpid(child, 0)[1] == 0
            stop.wait(0.03)
        stop.set()
        thread.join()
        print("fine")
        """,
        timeout=60,
    )
    assert done.stdout == "fine\n", done.stderr
