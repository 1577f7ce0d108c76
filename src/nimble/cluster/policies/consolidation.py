"""Which jobs wait for GPUs that are close together: Tiresias's rule, as released and corrected."""

from __future__ import annotations

from nimble.cluster.job import Job
from nimble.cluster.topology import Topology

# As released: models are skewed by name, and only jobs that fit inside a machine wait for one.
LISTED = ("vgg", "alexnet")
# Corrected: the largest tensor's share of a model's bytes says whether it is skewed.
SKEWED = 0.25


def is_skewed(job: Job, corrected: bool) -> bool:
    if corrected:
        return job.profile.skew >= SKEWED
    return job.profile.name.lower().startswith(LISTED)


def widest(topology: Topology, job: Job, corrected: bool) -> int:
    """The highest tier that a job may be placed in: the tightest that can hold it, if skewed."""
    top = len(topology.tiers) - 1
    if job.gpus_min == 1 or not is_skewed(job, corrected):
        return top
    tightest = topology.tightest(job.gpus_min)
    if tightest is None or (tightest > 0 and not corrected):
        return top
    return tightest
