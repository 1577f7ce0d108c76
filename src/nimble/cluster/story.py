"""One job's story in words, from its rows of the record."""

from __future__ import annotations

from collections.abc import Mapping

from nimble.cluster.policy import words
from nimble.cluster.record import Event, What
from nimble.cluster.result import Result
from nimble.errors import InputError


def story(result: Result, job: int, own: Mapping[str, str] | None = None) -> list[str]:
    """A line for everything that happened to the job with that id.

    `own`: words for the policy's own reasons.
    """
    place = next((p for p, known in enumerate(result.jobs) if known.id == job), None)
    if place is None:
        raise InputError(f"job {job}: there are {len(result.jobs)} jobs, from 0 on")
    lines = []
    last_s = 0.0
    for event in result.record.of_job(job):
        text = _sentence(result, place, event, last_s, own)
        lines.append(f"{clock(event.at_s):>16}  {text}")
        last_s = event.at_s
    return lines or [f"{'':>16}  not submitted before the run stopped"]


def _sentence(
    result: Result, place: int, event: Event, last_s: float, own: Mapping[str, str] | None
) -> str:
    job, why = result.jobs[place], words(event.reason.code, event.reason.numbers, own)
    because = f": {why}" if why else ""
    if event.what is What.SUBMIT:
        alone = duration(float(result.ideal_s[place]))
        return (
            f"{job.name} ({job.profile.name}) wants {_gpus(job.gpus_min)}; alone it takes {alone}"
        )
    if event.what is What.FINISH:
        ratio = result.jct_s[place] / result.ideal_s[place]
        return (
            f"finished after {duration(float(result.jct_s[place]))}, {ratio:.2f} x its time alone"
        )
    if event.placement:
        names = result.topology.names
        shown = [f"{_gpus(gpus)} of {names[machine]}" for machine, gpus in event.placement[:4]]
        more = len(event.placement) - len(shown)
        where = ", ".join(shown) + (f" and {more} more machines" if more else "")
        tier = result.topology.tiers[result.topology.tier(event.placement)].name
        verb = {What.MOVE: "moved to", What.RESIZE: "resized to"}.get(
            event.what, f"waited {duration(event.at_s - last_s)}, started on"
        )
        return f"{verb} {where} ({tier}){because}"
    return f"{'preempted' if event.what is What.STOP else 'stopped'}{because}"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def duration(seconds: float) -> str:
    """For people.

    >>> duration(12.34), duration(7260), duration(400_000)
    ('12.3 s', '2.0 h', '4.6 d')
    """
    for most, unit, name in ((100, 1, "s"), (3600, 60, "min"), (172800, 3600, "h")):
        if abs(seconds) < most:
            return f"{seconds / unit:.{0 if seconds == 0 else 1}f} {name}"
    return f"{seconds / 86400:.1f} d"


def clock(seconds: float) -> str:
    """
    >>> clock(90061)
    'day 1, 01:01:01'
    """
    day, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"day {day}, {text}" if day else text
