"""Random clusters, jobs and runs for the cluster's tests."""

from __future__ import annotations

import random

from nimble.cluster import Job, Options, Outage, Profile, Topology, grid

# Compute time, bytes, overlap: from one that never communicates much to one that does little else.
PROFILES = (
    Profile("small", 0.147, (47_000_000,), 0.3),
    Profile("even", 0.248, (200_000_000, 331_000_000), 0.5),
    Profile("heavy", 0.061, (1_244_000_000,)),
)


def cluster(rng: random.Random) -> Topology:
    depth = rng.choice((1, 2, 2, 3, 3, 3, 4))
    shape = [rng.randint(1, 4) for _ in range(depth - 1)] + [rng.choice((1, 2, 4, 8))]
    return grid(shape, oversubscription=rng.choice((1.0, 2.0, 8.0, 32.0)))


def jobs(rng: random.Random, topology: Topology, count: int) -> list[Job]:
    """Submitted over a time that keeps the cluster about full; sizes from one GPU to all."""
    made = []
    sizes = [g for g in (1, 1, 2, 3, 4, 5, 6, 9, 10, 12, 16) if g <= topology.gpus]
    sizes.append(topology.gpus)
    at = 0.0
    for i in range(count):
        at += rng.choice((0.0, rng.expovariate(1 / 200)))
        gpus = rng.choice(sizes)
        profile = rng.choice(PROFILES)
        made.append(
            Job(
                id=i,
                name=f"j{i}",
                submit_s=at,
                # A fifth are elastic.
                gpus_min=gpus if rng.random() < 0.8 else rng.randint(1, gpus),
                gpus_max=gpus,
                iterations=max(1, round(rng.expovariate(1 / 900) / profile.compute_s)),
                profile=profile,
                checkpoint_s=rng.choice((0.0, 5.0)),
                restart_s=rng.choice((0.0, 20.0)),
                priority=rng.choice((0, 0, 0, 1)),
                tenant=rng.choice(("a", "b")),
            )
        )
    return made


def options(rng: random.Random, topology: Topology) -> Options:
    machines = len(topology.machines)
    outages = []
    if rng.random() < 0.3 and machines > 1:
        for _ in range(rng.randint(1, 3)):
            at = rng.uniform(0, 5000)
            outages.append(Outage(rng.randrange(machines), at, at + rng.uniform(1, 3000)))
    return Options(
        contention=rng.random() < 0.9,
        invariants=True,
        record_rates=True,
        restart_policy=rng.random() < 0.5,
        outages=tuple(outages),
        checkpoint_every_s=rng.choice((float("inf"), 300.0)),
    )
