"""Dally's comparison again: 500 jobs, batch and Poisson, congested or not, contention off and on.

Every policy runs the same jobs, seed by seed; what is compared are the paired differences to
Dally's results, with 95 % intervals (Student's t over seeds).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import stats

from nimble.cluster.generate import generate
from nimble.cluster.mixes import DALLY
from nimble.cluster.policies import POLICIES
from nimble.cluster.profiles import bundled
from nimble.cluster.result import Options
from nimble.cluster.simulator import simulate
from nimble.cluster.topology import Topology, grid
from nimble.cluster.work import alone_on

# What the paper claims, at best: less makespan, mean JCT and communication time.
PUBLISHED = {"makespan_s": 0.69, "mean_jct_s": 0.83, "comm_s": 0.98}
MEASURES = ("makespan_s", "mean_jct_s", "p99_jct_s", "comm_s")

FREE = (
    "fifo", "tiresias-released", "tiresias", "tiresias-gittins-released", "tiresias-gittins",
    "gandiva-released", "gandiva", "dally-staggered", "dally-20s", "dally-fixed", "dally-none",
)  # fmt: skip
# These know how much of a job is left, beforehand.
KNOWING = ("dally+", "srtf", "srsf")
# Each job at once, at its tightest placement, with nobody else there: no policy can do better.
ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Ours: the paper's cluster and congestion are not known."""

    shape: tuple[int, ...] = (8, 4, 8)  # racks, machines, GPUs
    # Congested: bytes/s of a machine's link, and how much more could come from below than may
    # leave a rack.
    congested_link: float = 1.25e9
    congested_ratio: float = 8.0
    link: float = 12.5e9
    ratio: float = 1.0
    inside: float = 150e9  # bytes/s of a GPU inside its machine
    jobs: int = 500
    # Offered loads of Poisson arrivals. The authors' 10 to 100 jobs a day are 0.04 to 0.42 of this
    # cluster, where nobody waits: in the light one few do, in the heavy one a queue builds up.
    light: float = 1.2
    heavy: float = 2.5
    checkpoint_s: float = 10.0
    restart_s: float = 10.0

    def topology(self, congested: bool) -> Topology:
        return grid(
            self.shape,
            oversubscription=self.congested_ratio if congested else self.ratio,
            bandwidth=(self.inside, self.congested_link if congested else self.link),
        )


@dataclass(frozen=True, slots=True)
class Scene:
    arrivals: str  # batch, light, heavy
    congested: bool
    contention: bool

    @property
    def words(self) -> str:
        arrivals = "batch" if self.arrivals == "batch" else f"{self.arrivals} Poisson"
        network = "congested" if self.congested else "uncongested"
        return f"{arrivals}, {network}, contention {'on' if self.contention else 'off'}"


SCENES = tuple(
    Scene(arrivals, congested, contention)
    for arrivals, congested, contention in product(
        ("batch", "light", "heavy"), (True, False), (False, True)
    )
)


@dataclass(frozen=True, slots=True)
class Difference:
    """What one policy takes less than another, as a share of what that one takes: 0.2 is 20 %.

    Below 0 it takes more: a loss. The mean over seeds, and its 95 % interval.
    """

    less: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def reproduce(
    seeds: int = 10,
    parameters: Parameters | None = None,
    policies: Sequence[str] = (*FREE, *KNOWING),
    scenes: Sequence[Scene] = SCENES,
    workers: int = 2,
    on_done: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """All runs and what they come to, as JSON can hold it."""
    chosen = parameters or Parameters()
    names = ["dally", *(name for name in policies if name != "dally")]
    tasks = [(scene, seed) for scene in scenes for seed in range(seeds)]
    rows: dict[tuple[Scene, int], dict[str, dict[str, float]]] = {}
    with ProcessPoolExecutor(workers) as pool:
        pending = {
            pool.submit(run, chosen, scene, seed, tuple(names)): (scene, seed)
            for scene, seed in tasks
        }
        for done, future in enumerate(as_completed(pending), 1):
            rows[pending[future]] = future.result()
            on_done(done, len(tasks))
    return {
        "parameters": asdict(chosen),
        "seeds": seeds,
        "published": PUBLISHED,
        "scenes": [
            _scene(scene, [rows[scene, s] for s in range(seeds)], names) for scene in scenes
        ],
    }


def run(
    parameters: Parameters, scene: Scene, seed: int, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Every policy on the same jobs."""
    topology = parameters.topology(scene.congested)
    batch = scene.arrivals == "batch"
    load = parameters.light if scene.arrivals == "light" else parameters.heavy
    poisson: dict[str, Any] = {"load": load, "cluster_gpus": topology.gpus}
    jobs = generate(
        DALLY,
        parameters.jobs,
        alone_on(topology),
        bundled(),
        arrivals="batch" if batch else "poisson",
        largest=topology.gpus,
        checkpoint_s=parameters.checkpoint_s,
        restart_s=parameters.restart_s,
        seed=seed,
        **({} if batch else poisson),
    )
    found: dict[str, dict[str, float]] = {}
    for name in names:
        result = simulate(topology, jobs, POLICIES[name](), Options(contention=scene.contention))
        found[name] = {
            "makespan_s": float(result.finish_s.max() - result.submit_s.min()),
            "mean_jct_s": float(result.jct_s.mean()),
            "p99_jct_s": float(np.percentile(result.jct_s, 99)),
            "comm_s": float(result.comm_s.sum()),
            "queueing_s": float(result.waited_s.mean()),
            "preemptions": float(result.preemptions.sum()),
        }
        # All GPUs are alike, so that computing takes the same time everywhere.
        found[ALONE] = {
            "mean_jct_s": float(result.ideal_s.mean()),
            "comm_s": float((result.ideal_s - result.compute_s).sum()),
        }
    return found


def _scene(
    scene: Scene, rows: Sequence[dict[str, dict[str, float]]], names: Sequence[str]
) -> dict[str, Any]:
    def takes_less(one: str, other: str) -> dict[str, Any]:
        return {
            measure: asdict(
                difference(
                    [row[one][measure] for row in rows], [row[other][measure] for row in rows]
                )
            )
            for measure in MEASURES
        }

    means = {
        name: {key: float(np.mean([row[name][key] for row in rows])) for key in rows[0][name]}
        for name in (*names, ALONE)
    }
    found = {
        **asdict(scene),
        "words": scene.words,
        "means": means,
        "dally_takes_less": {name: takes_less("dally", name) for name in names if name != "dally"},
    }
    if "dally+" in names:
        found["dally_plus_takes_less"] = takes_less("dally+", "dally")
    return found


def difference(one: Sequence[float], other: Sequence[float]) -> Difference:
    """The paired difference, relative to the other policy's result.

    >>> difference([1.0, 2.0], [2.0, 4.0])
    Difference(less=0.5, low=0.5, high=0.5)
    """
    less = 1 - np.array(one) / np.array(other)
    mean = float(less.mean())
    if len(less) < 2:
        return Difference(mean, -float("inf"), float("inf"))
    half = float(stats.t.ppf(0.975, len(less) - 1) * less.std(ddof=1) / np.sqrt(len(less)))
    return Difference(mean, mean - half, mean + half)
