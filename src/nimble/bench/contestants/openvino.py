"""OpenVINO: the latency hint, f32, static shapes, memory shared with the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import openvino
import torch

from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import Flat
from nimble.bench.contestants.onnx_file import onnx_file


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    converted = openvino.convert_model(onnx_file(Flat(model, args, kwargs)))
    compiled = openvino.Core().compile_model(
        converted,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
        },
    )
    request = compiled.create_infer_request()
    outputs = range(len(compiled.outputs))

    def run(tensors: list[torch.Tensor]) -> Any:
        feed = [tensor.numpy() for tensor in tensors]
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[index] for index in outputs]

    return run
