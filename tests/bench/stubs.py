"""Contestants that misbehave, each in its own way."""

import os
import signal
import time
from pathlib import Path

import torch

from nimble.bench.contestants.eager import load as eager
from nimble.capture.structure import flatten


def honest(model, args, kwargs, threads):
    return eager(model, args, kwargs, threads)


def zeros(model, args, kwargs, threads):
    run = eager(model, args, kwargs, threads)
    return lambda tensors: torch.zeros_like(run(tensors))


def stale(model, args, kwargs, threads):
    """Whatever it is asked, it gives its answer to the example."""
    run, example = eager(model, args, kwargs, threads), flatten((args, kwargs))[0]
    return lambda tensors: run(example)


def segfaults(model, args, kwargs, threads):
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(model, args, kwargs, threads):
    os._exit(3)


def spins(model, args, kwargs, threads):
    """Looks for work for half a second after it was loaded, then sleeps."""
    (Path(os.environ["TMPDIR"]) / "spins").touch()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass
    time.sleep(600)


def hangs(model, args, kwargs, threads):
    time.sleep(600)


def raises(model, args, kwargs, threads):
    raise RuntimeError("no kernel for [this]\nand a long story")


def dies_later(model, args, kwargs, threads):
    run, calls = eager(model, args, kwargs, threads), []

    def later(tensors):
        calls.append(None)
        if len(calls) > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(tensors)

    return later


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x, *, pair):
        return torch.tanh(self.layer(x + pair["a"] * pair["b"]))


def small():
    """Its weights and inputs differ from process to process; the referee hands out its own."""
    torch.seed()
    pair = {"a": torch.randn(2, 8), "b": torch.randn(2, 8)}
    return Small().eval(), (torch.randn(2, 8),), {"pair": pair}


def blind():
    return (lambda x: x * 0 + 1), (torch.randn(3),)
