"""What a bench found out, and its JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """One contestant on one network with one number of threads. None: not measured."""

    model: str
    contestant: str
    threads: int
    ok: bool
    reason: str = ""
    """Why it is not ok."""
    best: int | None = None
    """The number of threads with which this contestant is faster on this network."""
    median_ms: float | None = None
    min_ms: float | None = None
    p99_ms: float | None = None
    spread: float | None = None
    """The width of the middle nine tenths of all calls, over the median."""
    calls: int = 0
    compile_s: float | None = None
    first_ms: float | None = None
    """From the model in memory to the first answer, compilation included."""
    peak_mb: float | None = None
    """The most memory the process held, Python and torch included."""
    running_mb: float | None = None
    """The same once it had compiled and given its first answers."""
    error: float | None = None
    """max|y - y64| / max|y64|."""
    ratio: float | None = None
    """Its time over Nimble's, the median over rounds; Nimble with its better number of threads."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    of_limit: float | None = None
    """Its median over the network's limit."""
    overhead_ms: float | None = None
    """A replay's time beyond the kernels on its critical path; known for Nimble only."""
    overhead_share: float | None = None
    """That, over the replay's time."""
    call_ms: float | None = None
    """A call's time beyond the replay."""

    @property
    def counts(self) -> bool:
        """Whether this is the contestant's better setting."""
        return self.ok and self.best == self.threads

    @property
    def scheduling(self) -> str | None:
        """What scheduling costs, in words."""
        if self.overhead_ms is None or self.overhead_share is None or self.call_ms is None:
            return None
        return (
            f"{1e3 * self.overhead_ms:.1f} µs of a replay beyond the kernels on its critical path, "
            f"{100 * self.overhead_share:.1f} %; a call takes {1e3 * self.call_ms:.1f} µs more"
        )


@dataclass(frozen=True)
class Network:
    """The physical limit of one network on this machine."""

    model: str
    flops: int
    bytes: int
    compute_ms: float
    """Arithmetic over the peak of a large matrix product."""
    memory_ms: float
    """Bytes that must move over the bandwidth of the memory or cache that can hold them."""
    allowed_error: float

    @property
    def limit_ms(self) -> float:
        return max(self.compute_ms, self.memory_ms)


@dataclass(frozen=True)
class Result:
    machine: dict[str, Any]
    networks: tuple[Network, ...]
    rows: tuple[Row, ...]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.rows))

    def network(self, model: str) -> Network | None:
        return next((n for n in self.networks if n.model == model), None)

    def of(self, model: str) -> list[Row]:
        """One row for each contestant: its better setting, or its failure; fastest first."""
        mine: dict[str, Row] = {}
        for row in self.rows:
            if row.model == model and (row.counts or row.contestant not in mine):
                mine[row.contestant] = row
        return sorted(mine.values(), key=lambda row: row.median_ms or float("inf"))

    def save(self, path: Path) -> None:
        networks = [asdict(n) | {"limit_ms": n.limit_ms} for n in self.networks]
        rows = [asdict(row) for row in self.rows]
        everything = {"machine": self.machine, "networks": networks, "rows": rows}
        path.write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")

    @staticmethod
    def load(path: Path) -> Result:
        read = json.loads(path.read_text())
        networks = tuple(
            Network(**{k: v for k, v in n.items() if k != "limit_ms"}) for n in read["networks"]
        )
        return Result(read["machine"], networks, tuple(Row(**row) for row in read["rows"]))
