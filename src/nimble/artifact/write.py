"""Engine → file."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nimble.artifact.checked import note_right
from nimble.artifact.layout import DIGESTS, FORMAT, PLAN, weight
from nimble.artifact.structures import encode
from nimble.artifact.weights import to_bytes
from nimble.capture import Parameters
from nimble.devices.cpu import this_cpu
from nimble.errors import ArtifactError
from nimble.graph.codec import encode as encode_graph
from nimble.plan import Plan
from nimble.schedule.codec import encode as encode_schedule
from nimble.settings import Settings


def write_engine(
    path: Path,
    name: str,
    settings: Settings,
    plans: Sequence[Plan],
    parameters: Parameters,
    pad: str | None = None,
    device: str = "cpu",
) -> None:
    """Write plans and the weights they use. The file appears whole or not at all."""
    if not plans:
        raise ArtifactError("the engine has no plan to save; call it or compile it first")
    tensors: dict[str, Callable[[], torch.Tensor]] = {}
    body: dict[str, Any] = {
        "format": FORMAT,
        "torch": torch.__version__,
        "cpu": this_cpu(),
        "device": device,
        "name": name,
        "settings": asdict(settings),
        "parameters": asdict(parameters),
        "pad": pad,
        "plans": [
            _plan(plan, number, settings.workers, tensors) for number, plan in enumerate(plans)
        ],
    }
    digests: dict[str, str] = {}
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for part, data in _parts(body, tensors):
                digests[part] = hashlib.sha256(data).hexdigest()
                archive.writestr(part, data)
            archive.writestr(DIGESTS, json.dumps(digests))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    for plan in body["plans"]:
        note_right(plan["graph"])


def _parts(
    body: dict[str, Any], tensors: dict[str, Callable[[], torch.Tensor]]
) -> Iterator[tuple[str, bytes]]:
    yield PLAN, json.dumps(body).encode()
    for key, tensor in tensors.items():
        yield weight(key), to_bytes(tensor())


def _plan(
    plan: Plan, number: int, workers: int, tensors: dict[str, Callable[[], torch.Tensor]]
) -> dict[str, Any]:
    """One plan as JSON; adds the tensors it uses to `tensors` and says under which name."""
    stored = {}
    for name, tensor in (*_held(plan), *plan.elsewhere.items()):
        # Constants of different traces may share a name; parameters of the module do not.
        key = f"plan{number}/{name}" if name.startswith("constant.") else name
        tensors[key] = tensor
        stored[name] = key
    return {
        "tensors": stored,
        "inputs": [
            [str(dtype).removeprefix("torch."), list(shape), list(strides)]
            for dtype, shape, strides in plan.signature.tensors
        ],
        "names": plan.names,
        "arguments": encode(plan.signature.structure),
        "ambient": [None if a is None else str(a) for a in plan.signature.ambient],
        "output": encode(plan.output),
        "graph": encode_graph(plan.source),
        "sides": plan.sides,
        "costs": [task.cost for task in plan.lowered.tasks],
        "cut": {
            "how": plan.cut,
            "workers": workers,
            "lean": plan.lean,
            "costs": [task.cost for task in plan.graph.tasks],
        },
        **encode_schedule(plan.schedule),
        "steps": [asdict(step) for step in plan.steps],
        "captured_tasks": plan.captured_tasks,
        "measured_ns": plan.measured_ns,
        "choice": plan.choice,
        "paddable": sorted(rows for rows, why in plan.padded.items() if why is None),
    }


def _held(plan: Plan) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    for name, tensor in plan.tensors.items():
        yield name, partial(_itself, tensor)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
