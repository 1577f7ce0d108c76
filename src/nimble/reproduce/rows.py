"""The tables of `nimble reproduce nimble`: published, predicted, and how far apart they are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from nimble.devices.sim import default_constants, find_host
from nimble.reproduce.fit import fit, training_name
from nimble.reproduce.model import Model, Predictor, crowd_ns
from nimble.reproduce.networks import Captured, capture_network, capture_training
from nimble.reproduce.published import (
    CONCURRENCY,
    CROWD,
    INFERENCE,
    NO_HELP,
    OTHERS,
    OVER_ONE_STREAM,
    OVER_TENSORRT,
    RESNET50_MS,
    RESNET50_STEP_MS,
    TRAINING,
    Latency,
)
from nimble.schedule.build import order_of
from nimble.schedule.matching import width

SPEEDUP, STEP = "inference speed-up over PyTorch", "training speed-up over PyTorch"
RATIO = "several streams / one stream"


@dataclass(frozen=True, slots=True)
class Row:
    network: str
    metric: str
    published: float
    predicted: float
    held_out: bool
    """Predicted by a model that was fitted without this network."""
    unit: str = "x"

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1


@dataclass(frozen=True, slots=True)
class Tables:
    rows: tuple[Row, ...]
    constants: Mapping[str, float]
    """Fitted to all cells."""

    def cells(self, held_out: bool) -> list[Row]:
        """The published speed-ups of networks that the model is fitted to, or not."""
        return [r for r in self.rows if r.metric in (SPEEDUP, STEP) and r.held_out is held_out]

    def median(self, held_out: bool) -> float:
        return statistics.median(abs(row.error) for row in self.cells(held_out))

    def worst(self) -> Row:
        return max(self.cells(True), key=lambda row: abs(row.error))


def networks() -> Iterator[tuple[str, Callable[[], Captured]]]:
    """Everything that has to be captured, by name."""
    plain = [c.network for c in (*INFERENCE, *NO_HELP, *OTHERS)] + list(CONCURRENCY)
    for name in dict.fromkeys(plain):
        yield name, partial(capture_network, name)
    for cell in TRAINING:
        name = training_name(cell.network, cell.batch)
        yield name, partial(capture_training, name)


def tables(captured: Mapping[str, Captured], report: Callable[[str], None]) -> Tables:
    """Fit with every network and without each, and predict everything that is published."""
    predictor = Predictor(captured)
    report("fitting to all networks")
    values = fit(predictor)
    everything = _model(values)
    measured = sorted({c.network for c in INFERENCE} | {c.network for c in TRAINING})
    without = {}
    for network in measured:
        report(f"fitting without {network}")
        without[network] = _model(fit(predictor, {network}))
    rows: list[Row] = []
    for held_out in (True, False):
        for cell in INFERENCE:
            model = without[cell.network] if held_out else everything
            found = predictor.inference_speedup(cell.network, model)
            rows.append(Row(cell.network, SPEEDUP, cell.nimble, found, held_out))
        for step in TRAINING:
            name = training_name(step.network, step.batch)
            model = without[step.network] if held_out else everything
            found = predictor.training_speedup(name, model)
            rows.append(Row(name, STEP, step.nimble, found, held_out))
    rows += _headlines(predictor, without)
    for case in NO_HELP:
        network = case.network.partition("@")[0]
        if network not in without:
            report(f"fitting without {network}")
            without[network] = _model(fit(predictor, {network}))
        rows += _latencies(predictor, case, without[network], True)
        rows += _latencies(predictor, case, everything, False)
    for case in OTHERS:
        network = case.network.partition("@")[0]
        rows += _latencies(predictor, case, without.get(network, everything), True)
    rows += _unplaced(predictor, without["resnet50"])
    rows += [
        Row(f"{c.streams} convolutions at once", "RTX 2080 Ti", c.ms,
            crowd_ns(c.streams, everything.constants) / 1e6, False, "ms")
        for c in CROWD
    ]  # fmt: skip
    for name, streams in CONCURRENCY.items():
        found = width(order_of(captured[name].subject.eager))
        rows.append(Row(name, "degree of concurrency", streams, found, True, ""))
    return Tables(tuple(rows), values)


def _model(values: Mapping[str, float]) -> Model:
    return Model.of(values, find_host("paper").name)


def _headlines(predictor: Predictor, without: Mapping[str, Model]) -> Iterator[Row]:
    best = max(INFERENCE, key=lambda cell: cell.nimble / cell.tensorrt)
    model = without[best.network]
    found = predictor.inference_speedup(best.network, model) / best.tensorrt
    yield Row(best.network, "over TensorRT, with its published time", OVER_TENSORRT, found, True)
    gains = {
        cell.network: predictor.single_ns(cell.network, "v100", without[cell.network])
        / predictor.multi_ns(cell.network, "v100", without[cell.network])
        for cell in INFERENCE
    }
    most = max(gains, key=lambda name: gains[name])
    yield Row(most, "several streams over one, at most", OVER_ONE_STREAM, gains[most], True)


def _unplaced(predictor: Predictor, model: Model) -> Iterator[Row]:
    """Milliseconds that were published without saying on which GPU; a V100 is assumed."""
    single = predictor.single_ns("resnet50", "v100", model) / 1e6
    step = predictor.training_ns(training_name("resnet50", 32), "v100", model, several=False) / 1e6
    where = "(NIMBLE_EVAL.md, GPU not said)"
    yield Row("resnet50", f"one stream {where}", RESNET50_MS, single, True, "ms")
    yield Row("resnet50@32x32", f"step, one stream {where}", RESNET50_STEP_MS, step, True, "ms")


def _latencies(predictor: Predictor, case: Latency, fitted: Model, held_out: bool) -> Iterator[Row]:
    """Milliseconds on another GPU and host."""
    model = Model(fitted.constants, find_host(case.host))
    name, gpu = case.network, case.gpu
    where = f"{case.source}, {gpu}"
    single = predictor.single_ns(name, gpu, model, case.mode, fused=case.fused) / 1e6
    multi = predictor.multi_ns(name, gpu, model, case.mode, fused=case.fused) / 1e6
    if case.eager is not None:
        eager = predictor.eager_ns(name, gpu, model) / 1e6
        yield Row(name, f"PyTorch ({where})", case.eager, eager, held_out, "ms")
    yield Row(name, f"one stream ({where})", case.single, single, held_out, "ms")
    yield Row(name, f"several streams ({where})", case.multi, multi, held_out, "ms")
    yield Row(name, f"{RATIO} ({where})", case.multi / case.single, multi / single, held_out, "")


def stored_model() -> Model:
    """The constants that come with Nimble, on the paper's host."""
    return Model(default_constants(), find_host("paper"))
