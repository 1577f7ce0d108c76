"""The referee's hold on a contestant's process: ask it, wait for so long, kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import astuple
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nimble.bench.job import Failed, Job, environment

PAUSE, SPINNING = 0.005, 0.3
"""Seconds: between two looks at whether a contestant sleeps, and how long it may take it."""


class LostError(Exception):
    """The contestant is out; the text says why."""


class Child:
    def __init__(self, job: Job, folder: Path, timeout: float) -> None:
        self.job = job
        self._timeout = timeout
        folder.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        arguments = (theirs.fileno(), os.getpid(), *astuple(job))
        with theirs:
            # A session of its own: what it starts itself (compilers) is killed with it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nimble.bench.process", *map(str, arguments)],
                env=environment(job.threads, folder),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._pipe = Connection(ours.detach())

    def ask(self, question: str) -> Any:
        try:
            self._pipe.send(question)
        except OSError as error:
            raise LostError(self._died()) from error
        return self.receive()

    def receive(self) -> Any:
        if not self._pipe.poll(self._timeout):
            raise LostError(f"no answer within {self._timeout:g} s")
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise LostError(self._died()) from error
        if isinstance(answer, Failed):
            raise LostError(answer.reason)
        return answer

    def settle(self) -> None:
        """Wait until it sleeps, so that the next one has the machine: threads that found no work
        spin before they do."""
        end = time.monotonic() + SPINNING
        time.sleep(PAUSE)
        while self._runs() and time.monotonic() < end:
            time.sleep(PAUSE)

    def _runs(self) -> bool:
        """Whether any of its threads is on a core or wants to be."""
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                if thread.read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def _died(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "crashed: it hung up and did not end"
        return f"crashed: signal {-code}" if code < 0 else f"crashed: exit code {code}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
