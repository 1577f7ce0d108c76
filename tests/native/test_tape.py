"""A tape runs its tasks in the order of its streams and waits, and says what it refuses."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from nimble import _core

Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LIBC = ctypes.CDLL(None)
LIBSTDCXX = ctypes.CDLL("libstdc++.so.6")
SLEEP = ctypes.cast(LIBC.usleep, ctypes.c_void_p).value or 0
"""A kernel that sleeps for `context` microseconds."""
THROW = ctypes.cast(LIBSTDCXX._ZSt21__throw_runtime_errorPKc, ctypes.c_void_p).value or 0
"""A kernel that throws std::runtime_error with the message at address `context`."""


@pytest.fixture(autouse=True)
def _two_workers() -> Iterator[None]:
    _core.set_workers(2)
    yield
    _core.set_workers(_core.usable_cores())


class Log:
    """Kernels that note in Python that they were run."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.kernel = Kernel(lambda task: self.tasks.append(task or 0))
        self.address = ctypes.cast(self.kernel, ctypes.c_void_p).value or 0

    def add(self, tape: _core.Tape, stream: int, task: int) -> None:
        tape.call(stream, task, self.address, task)


def message_of(call: Callable[[], None]) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value)


def test_a_stream_keeps_its_order() -> None:
    log, tape = Log(), _core.Tape(streams=1, tasks=5, slots=0)
    for task in (3, 1, 4, 0, 2):
        log.add(tape, 0, task)
    tape.finish()
    tape.replay()
    tape.replay()
    assert log.tasks == [3, 1, 4, 0, 2] * 2


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_waits_order_tasks_of_different_streams(workers: int) -> None:
    _core.set_workers(workers)
    log, tape = Log(), _core.Tape(streams=3, tasks=30, slots=0)
    for task in range(30):
        if task > 0:
            tape.wait(task % 3, task - 1)
        log.add(tape, task % 3, task)
    tape.finish()
    for _ in range(50):
        tape.replay()
    assert log.tasks == list(range(30)) * 50


def test_streams_run_at_the_same_time() -> None:
    tape = _core.Tape(streams=2, tasks=2, slots=0)
    tape.call(0, 0, SLEEP, 100_000)
    tape.call(1, 1, SLEEP, 100_000)
    tape.finish()
    (_, thread, start, stop), (_, other_thread, other_start, other_stop) = tape.record()
    assert thread != other_thread
    assert other_start < stop
    assert start < other_stop


def test_record_uses_the_monotonic_clock() -> None:
    log, tape = Log(), _core.Tape(streams=1, tasks=2, slots=0)
    log.add(tape, 0, 1)
    log.add(tape, 0, 0)
    tape.finish()
    before = time.monotonic_ns()
    first, second = tape.record()
    assert first[:2] == (1, 0)
    assert second[:2] == (0, 0)
    assert before <= first[2] <= first[3] <= second[2] <= second[3] <= time.monotonic_ns()


def test_a_failing_kernel_raises_and_the_tape_works_on() -> None:
    log = Log()
    message = ctypes.create_string_buffer(b"no memory for pool")
    failing = _core.Tape(streams=2, tasks=3, slots=0)
    log.add(failing, 0, 0)
    failing.wait(1, 0)
    failing.call(1, 1, THROW, ctypes.addressof(message))
    failing.wait(0, 1)
    log.add(failing, 0, 2)
    failing.finish()
    assert failing.failed_task is None
    for _ in range(20):
        with pytest.raises(RuntimeError, match="no memory for pool"):
            failing.replay()
        assert failing.failed_task == 1
    with pytest.raises(RuntimeError, match="no memory for pool"):
        failing.record()
    assert log.tasks == [0] * 21


def test_threads_may_replay_one_tape() -> None:
    log, tape = Log(), _core.Tape(streams=2, tasks=2, slots=0)
    log.add(tape, 0, 0)
    tape.wait(1, 0)
    log.add(tape, 1, 1)
    tape.finish()

    def replay_often() -> None:
        for _ in range(50):
            tape.replay()

    threads = [threading.Thread(target=replay_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.tasks == [0, 1] * 400


def test_replay_releases_the_gil() -> None:
    tape = _core.Tape(streams=1, tasks=1, slots=0)
    tape.call(0, 0, SLEEP, 300_000)
    tape.finish()
    thread = threading.Thread(target=tape.replay)
    thread.start()
    counted = 0
    while thread.is_alive():
        counted += 1
        time.sleep(0.001)
    assert counted > 10


def test_waits_that_cannot_be_satisfied_are_refused() -> None:
    log, tape = Log(), _core.Tape(streams=2, tasks=4, slots=0)
    tape.wait(0, 3)
    log.add(tape, 0, 0)
    expected = "task 0 on stream 0 waits for task 3, which is on no stream"
    assert message_of(tape.finish) == expected
    tape.wait(1, 0)
    log.add(tape, 1, 3)
    expected = "the waits form a deadlock: task 0 after task 3 after task 0"
    assert message_of(tape.finish) == expected


def test_a_wait_needs_a_task_that_follows() -> None:
    log, tape = Log(), _core.Tape(streams=2, tasks=1, slots=0)
    log.add(tape, 0, 0)
    tape.wait(1, 0)
    assert "stream 1 ends with a wait for task 0" in message_of(tape.finish)


def test_numbers_out_of_range_are_refused() -> None:
    tape = _core.Tape(streams=2, tasks=3, slots=1)
    assert message_of(lambda: tape.call(2, 0, SLEEP, 0)) == (
        "stream 2 is out of range: the tape has 2"
    )
    assert message_of(lambda: tape.wait(0, -1)) == "task -1 is out of range: the tape has 3"
    assert message_of(lambda: tape.call(0, 0, 0, 0)) == "task 0 has a null kernel"
    with pytest.raises(IndexError, match="slot 1 is out of range: the tape has 1"):
        tape.set_slot(1, 0)
    tape.call(0, 0, SLEEP, 0)
    assert message_of(lambda: tape.call(1, 0, SLEEP, 0)) == "task 0 is already on stream 0"
    assert message_of(lambda: _core.set_workers(0)).startswith("the number of workers is 0")
    with pytest.raises(ValueError, match="cannot have 0 streams"):
        _core.Tape(streams=0, tasks=1, slots=0)


def test_a_tape_is_finished_once_and_before_it_is_replayed() -> None:
    tape = _core.Tape(streams=1, tasks=1, slots=0)
    with pytest.raises(RuntimeError, match=r"not finished: call finish\(\) first"):
        tape.replay()
    tape.finish()
    for change in (tape.finish, lambda: tape.call(0, 0, SLEEP, 0), lambda: tape.wait(0, 0)):
        assert message_of(change) == "the tape is finished: nothing can be added to it"


def test_the_replay_api_is_a_capsule() -> None:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert is_valid(_core.replay_api, b"nimble._core.replay_api")
    assert _core.Tape(streams=1, tasks=0, slots=0).address > 0
