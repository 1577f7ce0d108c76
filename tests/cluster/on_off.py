"""Jobs that compute, then send, then compute again, over one link: exactly, burst by burst."""

from __future__ import annotations

from math import inf


def mean_iterations(
    compute_s: list[float], send: list[float], phase_s: list[float], iterations: int
) -> list[float]:
    """Mean seconds of an iteration of each job, over `iterations` of the slowest.

    The link carries 1 a second. Those that send share it evenly; the others compute. A job starts
    computing after its phase.
    """
    count = len(send)
    left = [c + p for c, p in zip(compute_s, phase_s, strict=True)]  # of the current part
    sending = [False] * count
    done = [0] * count
    began = list(phase_s)
    ended = [0.0] * count
    now = 0.0
    while min(done) < iterations:
        active = sum(sending)
        step = min((left[i] * active if sending[i] else left[i] for i in range(count)), default=inf)
        now += step
        for i in range(count):
            left[i] -= step / active if sending[i] else step
            if left[i] > 1e-12:
                continue
            if sending[i]:
                done[i] += 1
                ended[i] = now
            sending[i] = not sending[i]
            left[i] = send[i] if sending[i] else compute_s[i]
    return [(ended[i] - began[i]) / done[i] for i in range(count)]
