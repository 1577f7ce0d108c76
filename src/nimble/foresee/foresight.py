"""What a model would take on a GPU: eager, on one stream and on several, before anyone has one."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.devices.sim import (
    Choice,
    Constants,
    Gpu,
    Host,
    Prediction,
    choose_for_gpu,
    costs,
    find_gpu,
    find_host,
    predict,
    predict_eager,
)
from nimble.foresee.subject import Subject
from nimble.schedule import schedule


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Predictions for one subject on one GPU, and the schedule chosen for it."""

    subject: Subject
    gpu: Gpu
    host: Host
    eager: Prediction
    single: Prediction
    """A captured graph on one stream."""
    assigned: Prediction
    """On the streams of Nimble's exact assignment."""
    choice: Choice

    @property
    def gain(self) -> float:
        """The best found on several streams, against one stream: 1.25 is a quarter faster."""
        return self.single.ns / min(self.assigned.ns, self.choice.prediction.ns)

    @property
    def verdict(self) -> str:
        """Whether several streams help here, and by how much, in a sentence."""
        used = len(self.choice.schedule.streams)
        if len(self.assigned.streams) <= 1:
            return "One stream: every task depends on the one before it, so more cannot help."
        if used <= 1:
            ratio = self.assigned.ns / self.single.ns - 1
            return (
                "One stream: several do not clearly help here. Nimble's "
                f"{len(self.assigned.streams)} streams are predicted to be {abs(ratio):.1%} "
                f"{'slower' if ratio > 0 else 'faster'}."
            )
        return (
            f"{used} streams: predicted {self.single.ns / self.choice.prediction.ns:.2f} times as "
            "fast as one stream."
        )


def foresee(
    subject: Subject,
    gpu: Gpu | str,
    host: Host | None = None,
    *,
    streams: int | None = None,
    memory_limit: int | None = None,
    constants: Constants | None = None,
) -> Foreseen:
    """Predict a subject on a GPU in every way, and choose a schedule for it."""
    found = find_gpu(gpu) if isinstance(gpu, str) else gpu
    host = host or find_host("recent")
    graph, prices = subject.planned, costs(found, constants)
    single = schedule(graph, streams=1, costs=prices)
    return Foreseen(
        subject,
        found,
        host,
        predict_eager(
            subject.eager, found, numbers=subject.numbers, constants=constants, host=host
        ),
        predict(single, found, constants=constants),
        predict(schedule(graph, costs=prices), found, constants=constants),
        choose_for_gpu(graph, found, streams, memory_limit, constants=constants),
    )
