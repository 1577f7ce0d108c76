"""What was read of a trace, and what was not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that makes no sense. `row` is its line in the file, the first being 1."""

    row: int
    reason: str


@dataclass(slots=True)
class TraceReport:
    """`rows` = the rows that became part of a job + all skipped + all bad."""

    path: str
    rows: int = 0
    jobs: int = 0
    bad: list[BadRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that are right but no job for GPUs, by reason."""

    def as_json(self) -> dict[str, Any]:
        """All of it, every bad row included."""
        return {
            "path": self.path,
            "rows": self.rows,
            "jobs": self.jobs,
            "left_out": dict(sorted(self.skipped.items())),
            "bad_rows": [{"row": bad.row, "reason": bad.reason} for bad in self.bad],
        }

    def text(self, most: int = 10) -> str:
        """For people; lists the first bad rows."""
        lines = [f"{self.path}: {self.rows:,} rows, {self.jobs:,} jobs"]
        lines += [f"  left out {count:,}: {why}" for why, count in sorted(self.skipped.items())]
        if self.bad:
            lines.append(f"  bad rows {len(self.bad):,}:")
            lines += [f"    row {bad.row}: {bad.reason}" for bad in self.bad[:most]]
            if len(self.bad) > most:
                lines.append(f"    and {len(self.bad) - most:,} more")
        return "\n".join(lines)
