"""A plain CSV. `submit_s` and `gpus` must be there, and `duration_s` or `iterations`."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.cluster.traces.rows import above_zero, number, whole
from nimble.cluster.traces.trace import Entry

COLUMNS = ("submit_s", "gpus")
OPTIONAL = ("duration_s", "iterations", "gpus_min", "model", "tenant", "priority", "name")


def parse(row: Sequence[str]) -> Entry:
    submit, gpus, duration, iterations, least, model, tenant, priority, name = row
    if bool(duration) == bool(iterations):
        raise ValueError("expected either duration_s or iterations")
    if iterations and not model:
        raise ValueError("iterations are of a model, and it names none")
    most = whole(gpus, "gpus", 1)
    fewest = whole(least, "gpus_min", 1) if least else most
    if fewest > most:
        raise ValueError(f"gpus_min is {least}, above gpus, {gpus}")
    return Entry(
        number(submit, "submit_s"),
        most,
        above_zero(duration, "duration_s") if duration else 0.0,
        whole(iterations, "iterations", 1) if iterations else 0,
        model,
        tenant,
        name,
        fewest,
        whole(priority, "priority") if priority else 0,
        ",".join(row),
    )
