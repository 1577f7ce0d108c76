"""A modelled GPU: what a schedule would take on it, without one. All here are predictions.

`choose_for_gpu(graph, gpu)` decides the streams; `predict(schedule, gpu)` says what they take;
`costs(gpu)` prices tasks for `nimble.schedule`. Graphs are as rewritten, not lowered for the CPU.
"""

from nimble.devices.sim.choice import Choice, choose_for_gpu
from nimble.devices.sim.constants import (
    Constants,
    Error,
    Host,
    default_constants,
    find_host,
    host_names,
    published_error,
)
from nimble.devices.sim.gpus import Gpu, find_gpu, gpu_names
from nimble.devices.sim.predict import Prediction, costs, predict, predict_eager

__all__ = [
    "Choice",
    "Constants",
    "Error",
    "Gpu",
    "Host",
    "Prediction",
    "choose_for_gpu",
    "costs",
    "default_constants",
    "find_gpu",
    "find_host",
    "gpu_names",
    "host_names",
    "predict",
    "predict_eager",
    "published_error",
]
