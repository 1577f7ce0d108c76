"""How fast the cluster simulator is: on Philly's trace, as traces grow, and on 100,000 GPUs.

    python bench/cluster.py philly PATH/philly.csv    jobs/s as recorded and at arrivals x4
    python bench/cluster.py growth dally 0.9          10,000 to 1,000,000 jobs: log-log slope
    python bench/cluster.py large                     100,000 GPUs, 100,000 jobs

Every run is a process of its own; reading and making the jobs is not counted. Contention and
reasons are on. Medians of five, with the least and the most; one run of 100,000 generated jobs
or more.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from nimble.cluster import parse, simulate
from nimble.cluster.arrivals import speed_up
from nimble.cluster.generate import generate
from nimble.cluster.jobs import Jobs
from nimble.cluster.mixes import MIXES
from nimble.cluster.policies import POLICIES
from nimble.cluster.profiles import bundled
from nimble.cluster.topology import Topology
from nimble.cluster.traces import read_trace
from nimble.cluster.work import alone_on

TIMES = 5
GROWTH = (10_000, 31_623, 100_000, 316_228, 1_000_000)


def philly(path: str, speed: float) -> tuple[Topology, Jobs]:
    topology = parse("16x16x8")
    jobs = read_trace(path).jobs(alone_on(topology), bundled())
    return topology, speed_up(jobs, speed)


def generated(shape: str, jobs: int, load: float) -> tuple[Topology, Jobs]:
    topology = parse(shape)
    made = generate(
        MIXES["philly"],
        jobs,
        alone_on(topology),
        bundled(),
        load=load,
        cluster_gpus=topology.gpus,
        largest=topology.gpus,
    )
    return topology, made


def run(policy: str, kind: str, *where: str) -> dict[str, float]:
    """One simulation, in this process."""
    if kind == "philly":
        topology, jobs = philly(where[0], float(where[1]))
    else:
        topology, jobs = generated(where[0], int(where[1]), float(where[2]))
    began = time.perf_counter()
    result = simulate(topology, jobs, POLICIES[policy]())
    wall_s = time.perf_counter() - began
    assert result.complete
    return {
        "wall_s": wall_s,
        "jobs_per_s": len(jobs) / wall_s,
        "events_per_s": result.events / wall_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_queue": result.peak_queue,
        "preemptions": int(result.preemptions.sum()),
        "shared_link_s": result.shared_link_s,
        "slowed_s": result.contended_s,
        "mean_jct_s": float(np.nanmean(result.jct_s)),
    }


def measured(times: int, *arguments: str) -> dict[str, float]:
    """The run in the middle of `times`, with the least and most jobs/s."""
    runs = []
    for _ in range(times):
        command = [sys.executable, __file__, "run", *arguments]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append(json.loads(told))
    runs.sort(key=lambda one: one["wall_s"])
    middle: dict[str, float] = runs[len(runs) // 2]
    middle["least"] = min(one["jobs_per_s"] for one in runs)
    middle["most"] = max(one["jobs_per_s"] for one in runs)
    return middle


def show(label: str, one: dict[str, float]) -> None:
    print(
        f"{label:28} {one['jobs_per_s']:>8,.0f} jobs/s ({one['least']:,.0f} to {one['most']:,.0f})"
        f"  {one['wall_s']:7.2f} s  {one['events_per_s']:>8,.0f} events/s"
        f"  peak queue {one['peak_queue']:,}  preemptions {one['preemptions']:,}"
        f"  shared-link s {one['shared_link_s']:,.0f}  slowed s {one['slowed_s']:,.0f}"
        f"  mean JCT {one['mean_jct_s']:,.0f} s  {one['peak_mb']:.0f} MB",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    match arguments:
        case ["run", *rest]:
            print(json.dumps(run(*rest)))
        case ["philly", path, *only]:
            for policy in only or ["fifo", "dally"]:
                for speed in (1, 4):
                    known = str(Path(path).resolve())
                    show(
                        f"{policy}, arrivals x{speed}",
                        measured(TIMES, policy, "philly", known, str(speed)),
                    )
        case ["growth", policy, load]:
            seconds = []
            for jobs in GROWTH:
                times = TIMES if jobs < 100_000 else 1
                one = measured(times, policy, "generated", "16x16x8", str(jobs), load)
                show(f"{policy}, load {load}, {jobs:,} jobs", one)
                seconds.append(one["wall_s"])
            slope = np.polyfit(np.log(GROWTH), np.log(seconds), 1)[0]
            print(f"{policy}, load {load}: log-log slope {slope:.3f}", flush=True)
        case ["large", *only]:
            for policy in only or ["fifo", "dally"]:
                one = measured(1, policy, "generated", "50x25x10x8", "100000", "0.8")
                show(f"{policy}, 100,000 GPUs", one)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
