"""What placements would slow jobs by on the links they share."""

from __future__ import annotations

from collections import Counter

from nimble.cluster.job import Job
from nimble.cluster.topology import Placement
from nimble.cluster.view import View


class Links:
    """Of one decision: the jobs that run count, and those that it has started."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.used: Counter[int] = Counter()

    def slowdown(self, job: Job, placement: Placement) -> float:
        """Its time per iteration there, relative to the tightest placement alone."""
        view = self.view
        found = view.cost(job, placement)
        alone_s = view.ideal_s(job) / job.iterations
        others = max((self.used[link] for link, _ in found.traffic), default=0)
        return found.iteration_s / alone_s * (1 + others) / view.probe(job, placement)

    def use(self, job: Job, placement: Placement) -> None:
        self.used.update(link for link, _ in self.view.cost(job, placement).traffic)
