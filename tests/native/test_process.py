"""Replays live well with fork, signals, exit, affinity and an idle process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import nimble._core

SOURCE = str(Path(nimble._core.__file__).parents[1])

PRELUDE = """
import ctypes, gc, os, signal, threading, time
from nimble import _core

LIBC = ctypes.CDLL(None)
SLEEP = ctypes.cast(LIBC.usleep, ctypes.c_void_p).value
cells = (ctypes.c_float * 400)()
ADD = [1, 2, 1, 1, *[0, 1] * 3, 1, _core.opcodes()["add"], 2, 0, 1, 0]

def network(layers=50):
    # cells[i+1] = cells[i] + cells[0], two layers to each stream in turn
    tape = _core.Tape(streams=2, tasks=layers, slots=1)
    for i in range(layers):
        stream = i // 2 % 2
        if i > 0:
            tape.wait(stream, i - 1)
        tape.native(stream, i, "pointwise.float32", [(0, 4 * i + 4), (0, 4 * i), (0, 0)], ADD, [])
    tape.set_slot(0, ctypes.addressof(cells))
    tape.finish()
    return tape

def check(tape, replays=200):
    for i in range(replays):
        cells[0] = i
        tape.replay()
        assert cells[50] == 51 * i, (cells[50], i)

def succeeds(child):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

_core.set_workers(2)
"""


def run(script: str) -> str:
    """Runs the script in a process of its own; it must end well and print no error."""
    ended = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONWARNINGS": "ignore::DeprecationWarning"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def test_fork_before_the_first_replay() -> None:
    run("""
        tape = network()
        assert succeeds(lambda: check(tape))
        check(tape)
    """)


def test_fork_after_replays() -> None:
    run("""
        tape = network()
        check(tape)
        assert _core.pool_size() == 1

        def child():
            assert _core.pool_size() == 0
            check(tape)
            check(network())
            assert _core.pool_size() == 1
            assert succeeds(lambda: check(tape))

        for _ in range(5):
            assert succeeds(child)
            check(tape)
    """)


def test_fork_while_other_threads_replay() -> None:
    run("""
        tape, stop = network(), False

        def replay():
            while not stop:
                tape.replay()

        threads = [threading.Thread(target=replay) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            assert succeeds(lambda: check(tape))
        stop = True
        for thread in threads:
            thread.join()
    """)


def test_fork_while_a_kernel_needs_the_gil() -> None:
    run("""
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.001))
        tape = _core.Tape(streams=2, tasks=100, slots=0)
        for task in range(100):
            tape.call(task % 2, task, ctypes.cast(kernel, ctypes.c_void_p).value, 0)
        tape.finish()
        thread = threading.Thread(target=tape.replay)
        thread.start()
        time.sleep(0.01)
        assert succeeds(lambda: check(network()))
        thread.join()
    """)


def test_an_interrupt_during_a_replay_is_raised_after_it() -> None:
    run("""
        tape = _core.Tape(streams=2, tasks=4, slots=0)
        for task in range(4):
            tape.call(task % 2, task, SLEEP, 100_000)
        tape.finish()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in some shells
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for _ in range(100):
                tape.replay()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the interrupt was lost")
        tape.replay()
        assert len(tape.record()) == 4
        check(network())
    """)


@pytest.mark.parametrize("pause", [0, 0.01], ids=["helpers spin", "helpers sleep"])
def test_exit_with_a_live_tape(pause: float) -> None:
    run(f"""
        tape = network()
        check(tape)
        cycle = [tape]
        cycle.append(cycle)
        time.sleep({pause})
    """)


def test_exit_while_a_daemon_thread_replays() -> None:
    run("""
        tape = network()
        check(tape)

        def replay():
            while True:
                tape.replay()

        threading.Thread(target=replay, daemon=True).start()
        time.sleep(0.05)
    """)


def test_tapes_may_be_deleted_by_any_thread() -> None:
    run("""
        def use():
            for _ in range(100):
                tape = network()
                tape.replay()
                other = threading.Thread(target=lambda kept: kept.clear(), args=([tape],))
                del tape
                other.start()
                other.join()

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(network())
    """)


def test_an_idle_process_burns_no_cpu() -> None:
    run("""
        tape = network()
        check(tape)
        time.sleep(1)
        before = os.times()
        time.sleep(0.5)
        after = os.times()
        assert after.user + after.system - before.user - before.system <= 0.01
    """)


def test_the_caller_keeps_its_affinity_and_helpers_are_pinned() -> None:
    run("""
        before = os.sched_getaffinity(0)
        check(network())
        assert os.sched_getaffinity(0) == before
        helpers = set(map(int, os.listdir("/proc/self/task"))) - {os.getpid()}
        assert _core.pool_size() == 1
        pinned = [mask for h in helpers if len(mask := os.sched_getaffinity(h)) == 1]
        assert len(before) == 1 or pinned[0] < before
    """)


def test_a_helper_makes_way_for_the_caller() -> None:
    run("""
        tape = network()
        threads = set(os.listdir("/proc/self/task"))
        check(tape)
        [helper] = map(int, set(os.listdir("/proc/self/task")) - threads)
        cores = sorted(os.sched_getaffinity(0))
        for core in 4 * cores if len(cores) == 2 else ():
            os.sched_setaffinity(0, {core})
            check(tape)
            assert os.sched_getaffinity(helper) == set(cores) - {core}
    """)


def test_usable_cores_follow_the_affinity_mask() -> None:
    run("""
        assert 1 <= _core.usable_cores() <= len(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert _core.usable_cores() == 1
    """)


def test_one_stream_needs_no_helper() -> None:
    run("""
        _core.set_workers(8)
        tape = _core.Tape(streams=1, tasks=1, slots=0)
        tape.call(0, 0, SLEEP, 1)
        tape.finish()
        tape.replay()
        assert _core.pool_size() == 0
        check(network())
        assert _core.pool_size() == 1
    """)
