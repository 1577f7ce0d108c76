"""ONNX Runtime: every graph optimisation, inputs as views of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime
import torch

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import Flat
from nimble.bench.contestants.onnx_file import onnx_file


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_file(Flat(model, args, kwargs)), options, providers=["CPUExecutionProvider"]
    )
    names = [given.name for given in session.get_inputs()]

    def run(tensors: list[torch.Tensor]) -> Any:
        feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return session.run(None, feed)

    return run
