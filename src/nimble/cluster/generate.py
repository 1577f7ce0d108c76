"""Jobs made up from a mix, so that everything works with no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.arrivals import arrive, to_load
from nimble.cluster.jobs import Jobs
from nimble.cluster.mixes import Mix
from nimble.cluster.profile import Profile
from nimble.cluster.work import SoloIteration, iterations_for, solo_by_job
from nimble.errors import InputError


def generate(
    mix: Mix,
    jobs: int,
    solo_iteration_s: SoloIteration,
    profiles: Mapping[str, Profile],
    *,
    arrivals: str = "poisson",
    jobs_per_day: float | None = None,
    load: float | None = None,
    cluster_gpus: int | None = None,
    largest: int | None = None,
    tenants: int = 1,
    checkpoint_s: float = 0.0,
    restart_s: float = 0.0,
    seed: int = 0,
) -> Jobs:
    """`jobs` jobs of a mix, with batch, poisson or diurnal arrivals.

    Every seed gives the mix's shares of sizes, durations and models as exactly as whole jobs can;
    which job has which, and when it comes, is random. How fast they come is said by `jobs_per_day`,
    or by the offered `load` of `cluster_gpus` GPUs. Jobs above `largest` GPUs ask for `largest`.
    """
    if jobs < 1:
        raise InputError(f"{jobs} jobs asked for; expected 1 or more")
    if tenants < 1:
        raise InputError(f"{tenants} tenants asked for; expected 1 or more")
    if missing := sorted({name for name, _ in mix.models} - set(profiles)):
        raise InputError(f"mix {mix.name}: no profile for {', '.join(missing)}")
    rng = np.random.default_rng([seed, jobs])
    size, duration = _sizes(mix, jobs)
    shuffled = rng.permutation(jobs)
    size, duration = size[shuffled], duration[shuffled]
    if largest is not None:
        size = np.minimum(size, largest)
    used = tuple(profiles[name] for name, _ in mix.models)
    model = np.repeat(
        np.arange(len(used), dtype=np.int16), _shares([w for _, w in mix.models], jobs)
    )
    model = model[rng.permutation(jobs)]
    solo = solo_by_job(used, model, size, solo_iteration_s)
    made = Jobs(
        submit_s=np.zeros(jobs),
        gpus_min=size,
        gpus_max=size,
        iterations=iterations_for(duration, solo),
        model=model,
        profiles=used,
        tenant=rng.integers(0, tenants, jobs, dtype=np.int32) if tenants > 1 else None,
        tenants=tuple(f"tenant{place}" for place in range(tenants)) if tenants > 1 else ("",),
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
    )
    if arrivals == "batch":
        if load is not None or jobs_per_day is not None:
            raise InputError("batch arrivals come at once: they have no load or jobs_per_day")
        return made
    if (load is None) == (jobs_per_day is None):
        raise InputError(f"{arrivals} arrivals: expected one of load and jobs_per_day")
    # Scaled to a load afterwards, a clock of days would be stretched too: so the rate comes first.
    if load is not None:
        if cluster_gpus is None:
            raise InputError("a load is of so many GPUs: give cluster_gpus")
        work = float(np.dot(size, made.iterations * solo))
        jobs_per_day = 86400 * load * cluster_gpus * jobs / work
    assert jobs_per_day is not None
    made = arrive(made, arrivals, jobs_per_day, rng)
    if load is not None and cluster_gpus is not None and arrivals == "poisson" and jobs > 1:
        made = to_load(made, load, cluster_gpus, solo_iteration_s)
    return made


def _sizes(mix: Mix, jobs: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Sizes and durations, group after group, in the mix's shares."""
    kinds = [(group, size, weight) for group in mix.groups for size, weight in group.sizes]
    counts = _shares([weight for _, _, weight in kinds], jobs)
    size = np.repeat(np.array([size for _, size, _ in kinds], np.int32), counts)
    duration = np.empty(jobs)
    start = 0
    for group in mix.groups:
        mine = [count for (of, _, _), count in zip(kinds, counts, strict=True) if of is group]
        stop = start + sum(mine)
        # Spread over the quantiles, then given to the sizes of the group in turn.
        at = (np.arange(stop - start) + 0.5) / max(stop - start, 1)
        spread = np.exp(np.interp(at, mix.quantiles, np.log(group.durations_s)))
        duration[start:stop] = spread[_interleaved(mine)]
        start = stop
    return size, duration


def _interleaved(counts: Sequence[int]) -> NDArray[np.int64]:
    """Places such that each of several runs of these lengths is spread over all places."""
    keys = [(np.arange(count) + 0.5) / max(count, 1) for count in counts]
    order = np.argsort(np.concatenate(keys), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def _shares(weights: Sequence[float], total: int) -> NDArray[np.int64]:
    """Whole numbers in the proportion of the weights that add up (largest remainders)."""
    exact = np.array(weights, float) * total / sum(weights)
    counts = np.floor(exact).astype(np.int64)
    rest = total - int(counts.sum())
    counts[np.argsort(-(exact - counts), kind="stable")[:rest]] += 1
    return counts
