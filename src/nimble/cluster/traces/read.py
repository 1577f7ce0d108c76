"""A trace file of any known format → a Trace. One function a format; rows go through one loop."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from nimble.cluster.traces import gavel, helios, pai, philly, plain
from nimble.cluster.traces.report import BadRow, TraceReport
from nimble.cluster.traces.rows import Skipped
from nimble.cluster.traces.trace import Entry, Trace
from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class _Format:
    """How a file of rows is known, and what makes an entry of a row."""

    header: tuple[str, ...]
    """Columns that must be there, passed on in this order. Empty: the file has no header."""
    parse: Callable[[Sequence[str]], Entry]
    optional: tuple[str, ...] = ()
    """Columns that may be there, passed on after the others, "" where they are not."""
    merge: Callable[[Iterable[Entry]], list[Entry]] | None = None
    """Where a job is several rows."""
    delimiter: str = ","
    known_by: Callable[[Sequence[str]], bool] | None = None
    """For a file without a header: is this a first row?"""


FORMATS: dict[str, _Format] = {
    "philly": _Format(philly.COLUMNS, philly.parse),
    "helios": _Format(helios.COLUMNS, helios.parse),
    "pai": _Format(pai.COLUMNS, pai.parse, merge=pai.merge, known_by=pai.known_by),
    "gavel": _Format((), gavel.parse, delimiter="\t", known_by=gavel.known_by),
    "plain": _Format(plain.COLUMNS, plain.parse, plain.OPTIONAL),
}
"""By name; `philly` is also read in its original JSON."""


def read_trace(path: str | Path, format: str | None = None, *, strict: bool = False) -> Trace:
    """Read a trace. The format is found by its header, unless named.

    Bad rows are left out, counted and listed in the trace's report; with `strict` the first one is
    an error. A file with no good row, or with more bad rows than good ones, is refused.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise InputError(f"format {format!r}: expected one of {', '.join(FORMATS)}")
    try:
        text = _text(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error}") from error
    if not text.strip():
        raise InputError(f"{path}: the file is empty: there are no jobs in it")
    report = TraceReport(str(path))
    if text.lstrip()[:1] in ("[", "{") and format in (None, "philly"):
        format, rows = "philly", philly.log_rows(text, path)
        parse: Callable[[Any], Entry] = philly.parse_log
        merge = None
    else:
        format, rows, parse, merge = _table(text, path, format)
    del text
    entries = list(_parsed(rows, parse, report, strict))
    if merge is not None:
        entries = merge(entries)
    report.jobs = len(entries)
    if not report.rows:
        raise InputError(f"{path}: a {format} trace without rows: there are no jobs in it")
    if not entries and not report.bad:
        raise InputError(f"{path}: no row is a job for GPUs\n{report.text()}")
    if not entries or len(report.bad) > report.rows / 2:
        raise InputError(f"{path}: not a {format} trace, or a broken one\n{report.text()}")
    return Trace(format, entries, report)


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
            return file.read()
    return path.read_text(encoding="utf-8-sig")


def _table(
    text: str, path: Path, name: str | None
) -> tuple[
    str,
    Iterator[tuple[int, Any]],
    Callable[[Any], Entry],
    Callable[[Iterable[Entry]], list[Entry]] | None,
]:
    """The format, and the numbered rows of the columns that its parser takes."""
    first = text[: text.find("\n")] if "\n" in text else text
    for called, format in FORMATS.items():
        if name not in (None, called):
            continue
        head = next(csv.reader([first], delimiter=format.delimiter), [])
        head = [column.strip() for column in head]
        if format.header and set(format.header) <= set(head):
            pick = _pick(head, format)
            rows = _numbered(text, format.delimiter)
            next(rows)
            return called, map(pick, rows), format.parse, format.merge
        if format.known_by is not None and format.known_by(head):
            return called, _numbered(text, format.delimiter), format.parse, format.merge
    wanted = [name] if name else list(FORMATS)
    raise InputError(
        f"{path}: the first line is {first[:200]!r}; expected "
        + ", or ".join(_expected(called) for called in wanted)
    )


def _expected(name: str) -> str:
    format = FORMATS[name]
    columns = ", ".join(format.header)
    return f"({name}) columns {columns}" if columns else f"({name}) {gavel.EXPECTED}"


def _numbered(text: str, delimiter: str) -> Iterator[tuple[int, Sequence[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in reader:
        if row:
            yield reader.line_num, row


def _pick(
    head: Sequence[str], format: _Format
) -> Callable[[tuple[int, Sequence[str]]], tuple[int, Sequence[str]]]:
    columns = [*format.header, *(name for name in format.optional if name in head)]
    get = itemgetter(*(head.index(name) for name in columns))
    there = len(format.header) + len(format.optional) == len(columns)
    wide = len(head)
    given = [name in head for name in format.optional]
    count = len(format.header)

    def pick(numbered: tuple[int, Sequence[str]]) -> tuple[int, Sequence[str]]:
        line, row = numbered
        if len(row) != wide:
            return line, ()
        found = get(row)
        if there:
            return line, found
        rest = iter(found[count:])
        return line, (*found[:count], *(next(rest) if known else "" for known in given))

    return pick


def _parsed(
    rows: Iterable[tuple[int, Any]],
    parse: Callable[[Any], Entry],
    report: TraceReport,
    strict: bool,
) -> Iterator[Entry]:
    for line, row in rows:
        report.rows += 1
        try:
            if row == ():
                raise ValueError("it has not as many columns as the header")
            entry = parse(row)
            yield entry._replace(line=line) if entry.model else entry
        except Skipped as why:
            report.skipped[str(why)] += 1
        except ValueError as error:
            if strict:
                raise InputError(f"{report.path}, row {line}: {error}") from error
            report.bad.append(BadRow(line, str(error)))
