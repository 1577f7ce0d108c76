"""Changes every number of a saved plan, one at a time, and loads what comes of it.

    python tampering.py FILE INPUTS.pt STEP START

Its own process, since it looks for crashes: the change under way is printed before it is tried.
Every STEP-th change is, from START on.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

import nimble
from nimble.artifact.layout import DIGESTS, PLAN

NUMBERS = (0, 1, -1, 3, 2**31, 2**62, 2**63, 2**70, 1.5, None)


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


def tampered(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number replaced by every other, and every role and dtype by another."""
    text = json.dumps(body)
    for path in leaves(body):
        *inside, last = path
        held: Any = body
        for key in path:
            held = held[key]
        others: list[Any] = []
        if type(held) in (int, float) or held is None:
            others = [n for n in (*NUMBERS, *((held + 1, held - 1) if held else ())) if n != held]
        elif held in ("input", "output", "parameter", "state", "intermediate", "constant"):
            others = [r for r in ("input", "output", "state", "intermediate") if r != held]
        elif held in ("float32", "int64"):
            others = ["float64", "uint8", "bool", "token"]
        for other in others:
            changed = json.loads(text)
            place = changed
            for key in inside:
                place = place[key]
            place[last] = other
            yield f"{path}: {held!r} -> {other!r}", changed


def packed(body: dict[str, Any], weights: dict[str, bytes]) -> bytes:
    parts = {PLAN: json.dumps(body).encode(), **weights}
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, part in {**parts, DIGESTS: json.dumps(digests).encode()}.items():
            archive.writestr(name, part)
    return data.getvalue()


def main(file: str, inputs: str, step: int, start: int) -> None:
    given = torch.load(inputs)
    with zipfile.ZipFile(file) as archive:
        body = json.loads(archive.read(PLAN))
        weights = {n: archive.read(n) for n in archive.namelist() if n not in (PLAN, DIGESTS)}
    for number, (what, changed) in enumerate(tampered(body)):
        if number % step != start % step:
            continue
        print(what, flush=True)
        bad = f"{file}.bad"
        with open(bad, "wb") as out:
            out.write(packed(changed, weights))
        try:
            engine = nimble.load(bad)
        except nimble.errors.ArtifactError:
            continue
        engine.explain()
        try:
            for _ in range(2):
                results = engine(*(t.clone() for t in given))
                # Read every byte that was handed out.
                [t.clone() for t in results if isinstance(t, torch.Tensor)]
        except (nimble.NimbleError, RuntimeError, IndexError) as error:
            # A changed argument of an operator may fail in its kernel, as it does in eager.
            print("   ", type(error).__name__, str(error)[:100], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
