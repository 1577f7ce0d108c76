"""What was captured, run on real threads in an order that its happens-before relation allows."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol


class Recorded(Protocol):
    stream: str
    before: frozenset[int]
    run: Callable[[], Any]


def linear_extension(
    before: Sequence[frozenset[int]], streams: Sequence[str], seed: int
) -> list[int]:
    """An order in which everything comes after what it waits for. Most are drawn at random; others
    run one stream as far as it goes, or always what was launched last."""
    draw = random.Random(seed)
    children: list[list[int]] = [[] for _ in before]
    missing = [len(earlier) for earlier in before]
    for number, earlier in enumerate(before):
        for parent in earlier:
            children[parent].append(number)
    ready = [number for number, count in enumerate(missing) if not count]
    order: list[int] = []
    how = draw.choice(["any", "any", "one stream", "last"])
    while ready:
        if how == "last":
            place = max(range(len(ready)), key=ready.__getitem__)
        else:
            place = draw.randrange(len(ready))
            same = [p for p, n in enumerate(ready) if order and streams[n] == streams[order[-1]]]
            if how == "one stream" and same:
                place = same[0]
        number = ready.pop(place)
        order.append(number)
        for child in children[number]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    return order


def run_in_some_order(
    records: Sequence[Recorded],
    seed: int,
    over: Callable[[Any], None] = lambda record: None,
    *,
    racing: bool = False,
) -> None:
    """A thread for each stream. One operator at a time, in the order of the seed; or `racing`, all
    at once, each as soon as what it waits for is done and a random delay is over."""
    order = linear_extension([r.before for r in records], [r.stream for r in records], seed)
    lanes: dict[str, list[int]] = {}
    for number in order:
        lanes.setdefault(records[number].stream, []).append(number)
    turn = {stream: threading.Semaphore(0) for stream in lanes}
    following = {a: records[b].stream for a, b in pairwise(order)}
    done = [threading.Event() for _ in records]
    failed: list[BaseException] = []

    def alone(number: int) -> None:
        turn[records[number].stream].acquire()
        if not failed:
            records[number].run()
            over(records[number])

    def beside(number: int, draw: random.Random) -> None:
        for parent in records[number].before:
            done[parent].wait()
        time.sleep(draw.random() * 2e-4)
        if not failed:
            records[number].run()
            over(records[number])

    def lane(stream: str) -> None:
        draw = random.Random(f"{seed} {stream}")
        for number in lanes[stream]:
            try:
                beside(number, draw) if racing else alone(number)
            except BaseException as error:
                failed.append(error)
            finally:
                done[number].set()
                if number in following and not racing:
                    turn[following[number]].release()

    threads = [threading.Thread(target=lane, args=(stream,)) for stream in lanes]
    for thread in threads:
        thread.start()
    if order and not racing:
        turn[records[order[0]].stream].release()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
