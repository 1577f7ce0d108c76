"""Tasks beside which nothing else could run: only these are worth a tile for every worker.

Where branches keep all workers busy, whole tasks need fewer waits.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from nimble.graph import Graph, dependencies


def lonely(graph: Graph, workers: int) -> frozenset[int]:
    """Tasks during which, when their turn comes, too little is left for the other workers that
    needs neither them nor what they need.

    Found by playing through a list schedule: of the tasks that are ready, the one with the longest
    path to the end goes first, and is shared if it is lonely.
    """
    before = dependencies(graph)
    count = len(before)
    left = np.array([max(1, task.cost) for task in graph.tasks], np.int64)
    related = np.eye(count, dtype=np.bool_)
    after: list[list[int]] = [[] for _ in range(count)]
    for t, needed in enumerate(before):
        for b in needed:
            related[t] |= related[b]
            after[b].append(t)
    path = left.tolist()
    for t in range(count - 1, -1, -1):
        path[t] += max((path[a] for a in after[t]), default=0)
    related |= related.T
    missing = [len(needed) for needed in before]
    ready = [(-path[t], t) for t in range(count) if not missing[t]]
    heapify(ready)
    free = [0] * workers
    running: list[tuple[int, int]] = []
    """Ends, and tasks."""
    found: set[int] = set()
    now = 0
    while ready or running:
        now = max(now, min(free) if ready else running[0][0])
        while running and running[0][0] <= now:
            _, over = heappop(running)
            left[over] = 0
            for t in after[over]:
                missing[t] -= 1
                if not missing[t]:
                    heappush(ready, (-path[t], t))
        if not ready:
            continue
        _, t = heappop(ready)
        beside = int(left[~related[t]].sum())
        if beside < (workers - 1) * int(left[t]):
            found.add(t)
            share = -(-int(left[t]) // workers)
            free = [max(now, at) + share for at in free]
            end = max(free)
        else:
            soonest = free.index(min(free))
            end = free[soonest] = max(now, free[soonest]) + int(left[t])
        heappush(running, (end, t))
    return frozenset(found)
