"""The model as an ONNX file, for the peers that read one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx  # noqa: F401
import onnxscript  # noqa: F401
import torch
import torch.onnx

from nimble.bench.contestants.calls import Flat


def onnx_file(flat: Flat) -> Path:
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    program = torch.onnx.export(flat, flat.example, dynamo=True, verbose=False)
    assert program is not None
    program.save(str(path))
    return path
