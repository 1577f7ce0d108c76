"""What a trace says of each job, and the jobs made of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nimble.cluster.jobs import Jobs
from nimble.cluster.mixes import DALLY_MODELS
from nimble.cluster.profile import Profile
from nimble.cluster.traces.report import BadRow, TraceReport
from nimble.cluster.work import SoloIteration, iterations_for, solo_by_job
from nimble.errors import InputError


class Entry(NamedTuple):
    """One job of a trace. Of `duration_s` and `iterations` one is 0: not known."""

    submit_s: float
    gpus: int
    duration_s: float = 0.0
    iterations: int = 0
    model: str = ""
    tenant: str = ""
    name: str = ""
    gpus_min: int = 0
    """0: as many as `gpus`."""
    priority: int = 0
    row: str = ""
    """The text that a model is drawn by, where the trace names none."""
    line: int = 0
    """In the file, where the trace names a model."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Entries in the order of the file."""

    format: str
    entries: Sequence[Entry]
    report: TraceReport

    def within(self, gpus: int) -> Trace:
        """Without jobs that ask for more GPUs than there are; the report counts them."""
        kept = [entry for entry in self.entries if entry.gpus <= gpus]
        left = len(self.entries) - len(kept)
        if not left:
            return self
        skipped = self.report.skipped + Counter({f"asks for more than all {gpus} GPUs": left})
        return replace(
            self, entries=kept, report=replace(self.report, jobs=len(kept), skipped=skipped)
        )

    def known(self, profiles: Mapping[str, Profile]) -> Trace:
        """Without jobs of models that have no profile, which are bad rows; InputError if these are
        most of the file."""
        missing = Counter(e.model for e in self.entries if e.model and e.model not in profiles)
        if not missing:
            return self
        kept = [entry for entry in self.entries if entry.model not in missing]
        bad = [
            BadRow(entry.line, f"no profile for the model {entry.model!r}")
            for entry in self.entries
            if entry.model in missing
        ]
        listed = sorted([*self.report.bad, *bad], key=lambda row: row.row)
        report = replace(self.report, jobs=len(kept), bad=listed)
        if len(listed) > report.rows / 2:
            raise InputError(f"{report.text()}\n{_no_profile(missing, profiles)}")
        return replace(self, entries=kept, report=report)

    def jobs(
        self,
        solo_iteration_s: SoloIteration,
        profiles: Mapping[str, Profile],
        *,
        models: Sequence[tuple[str, float]] = DALLY_MODELS,
        seed: int = 0,
        checkpoint_s: float = 0.0,
        restart_s: float = 0.0,
    ) -> Jobs:
        """Jobs by submission time, the first at 0.

        Where the trace names no model, one of `models` is drawn, by weight, by a hash of the row's
        text and the seed: the same in every process, and whatever rows stand around it. A recorded
        duration counts as the time at the tightest placement, alone.
        """
        drawn = _Draw(models, seed)
        names = [entry.model or drawn(entry.row) for entry in self.entries]
        kinds = list(dict.fromkeys(names))
        if missing := [kind for kind in kinds if kind not in profiles]:
            raise InputError(f"{self.report.path}: {_no_profile(missing, profiles)}")
        order = np.argsort([entry.submit_s for entry in self.entries], kind="stable")
        entries = [self.entries[place] for place in order]
        place_of = {kind: place for place, kind in enumerate(kinds)}
        model = np.array([place_of[names[place]] for place in order], np.int16)
        submit = np.array([entry.submit_s for entry in entries], np.float64)
        gpus = np.array([entry.gpus for entry in entries], np.int32)
        least = np.array([entry.gpus_min for entry in entries], np.int32)
        duration = np.array([entry.duration_s for entry in entries])
        used = tuple(profiles[kind] for kind in kinds)
        solo = solo_by_job(used, model, gpus, solo_iteration_s)
        recorded = np.array([entry.iterations for entry in entries], np.int64)
        tenants = tuple(dict.fromkeys(entry.tenant for entry in entries)) or ("",)
        owner = {tenant: place for place, tenant in enumerate(tenants)}
        return Jobs(
            submit_s=submit - (submit[0] if len(submit) else 0.0),
            gpus_min=np.where(least > 0, least, gpus).astype(np.int32),
            gpus_max=gpus,
            iterations=np.where(recorded > 0, recorded, iterations_for(duration, solo)),
            model=model,
            profiles=used,
            tenant=np.array([owner[entry.tenant] for entry in entries], np.int32),
            tenants=tenants,
            priority=np.array([entry.priority for entry in entries], np.int32),
            names=[entry.name or f"job{place}" for place, entry in enumerate(entries)],
            checkpoint_s=checkpoint_s,
            restart_s=restart_s,
        )


def _no_profile(missing: Iterable[str], profiles: Mapping[str, Profile]) -> str:
    return (
        f"no profile for {', '.join(sorted(missing)[:8])}; known: "
        f"{', '.join(sorted(profiles)[:40])}. Give a file of profiles (--profiles)"
    )


class _Draw:
    """One of `models` for a text, by weight."""

    def __init__(self, models: Sequence[tuple[str, float]], seed: int) -> None:
        weights = np.array([weight for _, weight in models], float)
        if not len(weights) or not np.all(weights >= 0) or not weights.sum() > 0:
            raise InputError(f"models {models}: expected pairs of a name and a weight from 0 up")
        self._names = [name for name, _ in models]
        self._bounds: list[float] = (np.cumsum(weights) / weights.sum()).tolist()
        self._bounds[-1] = 1.0
        self._start = hashlib.blake2b(f"nimble models {seed}\n".encode(), digest_size=8)

    def __call__(self, text: str) -> str:
        state = self._start.copy()
        state.update(text.encode())
        share = int.from_bytes(state.digest(), "big") / 2**64
        for name, bound in zip(self._names, self._bounds, strict=True):
            if share < bound:
                return name
        return self._names[-1]
