"""An order of tasks, one by one, that keeps few bytes alive: what to run when memory is scarce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nimble.schedule.lifetimes import Home, peak
from nimble.schedule.matching import width
from nimble.schedule.order import Order, bits

_BUDGET = 200_000
"""Steps to look at in all; a wide graph gets a narrow search."""


class _State(NamedTuple):
    """A beginning of an order. States compare by the most and by the present bytes alive."""

    peak: int
    alive: int
    number: int
    done: int
    ready: int
    last: int
    previous: _State | None


def frugal(homes: Sequence[Home], order: Order) -> list[int]:
    """The order given, or one found by a beam search if that keeps fewer bytes alive."""
    return min([*order.sequence], _beam_search(homes, order), key=lambda s: peak(homes, s))


def _beam_search(homes: Sequence[Home], order: Order) -> list[int]:
    """At every step the few beginnings with the lowest peak are kept."""
    parents = [sum(1 << p for p in parents) for parents in order.parents]
    touching = [sum(1 << t for t in home.tasks) for home in homes]
    touched: list[list[int]] = [[] for _ in range(len(order))]
    for h, home in enumerate(homes):
        for task in home.tasks:
            touched[task].append(h)
    beam = max(1, min(16, _BUDGET // max(1, len(order) * width(order))))
    sources = sum(1 << t for t, before in enumerate(parents) if not before)
    states = [_State(0, 0, 0, 0, sources, -1, None)]
    for _ in range(len(order)):
        steps: dict[int, _State] = {}
        for state in states:
            for task in bits(state.ready):
                done = state.done | 1 << task
                alive = state.alive
                freed = 0
                for h in touched[task]:
                    if not touching[h] & state.done:
                        alive += homes[h].size
                    if not touching[h] & ~done and not homes[h].kept:
                        freed += homes[h].size
                step = _State(
                    max(state.peak, alive), alive - freed, len(steps), done, 0, task, state
                )
                if done not in steps or step < steps[done]:
                    steps[done] = step
        states = []
        for step in sorted(steps.values())[:beam]:
            assert step.previous is not None
            ready = step.previous.ready & ~(1 << step.last)
            for child in order.children[step.last]:
                if not parents[child] & ~step.done:
                    ready |= 1 << child
            states.append(step._replace(ready=ready))
    sequence = []
    state = states[0]
    while state.previous is not None:
        sequence.append(state.last)
        state = state.previous
    return sequence[::-1]
