"""Images made smaller and larger: pooling and resampling."""

from __future__ import annotations

from nimble.graph import Arg, Ref, Task
from nimble.graph.edit import call
from nimble.lower.heads.opening import Conversion, Given, Opening, is_image, spread


def _pool(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    if not opening.unread(*task.results[1:]):
        return None
    kwargs = _windows(given)
    kind = "max" if task.op.startswith("aten.max") else "mean"
    if kind == "mean":
        kwargs.append(("counts_padding", given["count_include_pad"]))
        kwargs.append(("divisor", given["divisor_override"] or 0))
    kwargs.append(("kind", kind))
    return _pooled(opening, task, given["self"], "nimble.pool", tuple(kwargs))


def _pool_gradient(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """By finding the largest again: that takes less time than to read where they were."""
    gradient, x, (result,) = given["grad_output"], given["self"], task.results
    if not isinstance(gradient, Ref) or not isinstance(x, Ref) or result is None:
        return None
    if len(opening.value(x).shape) != 4 or opening.value(gradient).numel == 0:
        return None
    made: list[Task] = []
    images = (opening.image(made, gradient, task.origin), opening.image(made, x, task.origin))
    target, copies = opening.as_image(result, task.origin)
    kwargs = tuple(_windows(given))
    back = call(task.name, "nimble.pool_gradient", images, (target,), kwargs, task.origin)
    return [*made, back, *copies]


def _windows(given: Given) -> list[tuple[str, Arg]]:
    kernel = spread(given["kernel_size"], ())
    return [
        ("kernel", kernel),
        ("stride", spread(given["stride"], kernel)),
        ("padding", spread(given["padding"], (0, 0))),
        ("dilation", spread(given.get("dilation", ()), (1, 1))),
    ]


def _adaptive(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    return _pooled(opening, task, given["self"], "nimble.adaptive_pool", ())


def _pooled(
    opening: Opening, task: Task, x: Arg, op: str, kwargs: tuple[tuple[str, Arg], ...]
) -> list[Task] | None:
    """Of an image that lies pixel by pixel; the result is copied if it lies otherwise."""
    result = task.results[0]
    if not isinstance(x, Ref) or result is None or len(opening.value(x).shape) != 4:
        return None
    if not is_image(opening.value(x)) or 0 in (
        opening.value(x).numel,
        opening.edit.values[result].numel,
    ):
        return None
    target, copies = opening.as_image(result, task.origin)
    return [call(task.name, op, (x,), (target,), kwargs, task.origin), *copies]


def _resample(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """To the nearest pixel, or bilinear. The steps from pixel to pixel are PyTorch's own."""
    x, result = given["self"], task.results[0]
    if not isinstance(x, Ref) or result is None or len(opening.value(x).shape) != 4:
        return None
    source, whole = opening.value(x), opening.edit.values[result]
    if 0 in (source.numel, whole.numel):
        return None
    aligned = bool(given.get("align_corners", False))
    factors = [given.get("scales_h"), given.get("scales_w")]
    steps = tuple(
        _step(n, out, factor, aligned)
        for n, out, factor in zip(source.shape[2:], whole.shape[2:], factors, strict=True)
    )
    mode = _MODES[task.op] + ("_aligned" if aligned else "")
    made: list[Task] = []
    image = opening.image(made, x, task.origin)
    target, copies = opening.as_image(result, task.origin)
    kwargs = (("mode", mode), ("steps", steps), ("first", 0))
    name, origin = task.name, task.origin
    resampled = call(name, "nimble.resample", (image,), (target,), kwargs, origin)
    return [*made, resampled, *copies]


def _step(size: int, out: int, factor: Arg, aligned: bool) -> float:
    """Input pixels per output pixel."""
    if aligned:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / factor if isinstance(factor, float) and factor > 0 else size / out


_MODES = {
    "aten._upsample_nearest_exact2d.default": "exact",
    "aten.upsample_bilinear2d.default": "bilinear",
    "aten.upsample_nearest2d.default": "nearest",
}
CONVERSIONS: dict[str, Conversion] = {
    "aten._adaptive_avg_pool2d.default": _adaptive,
    "aten.avg_pool2d.default": _pool,
    "aten.max_pool2d_with_indices.default": _pool,
    "aten.max_pool2d_with_indices_backward.default": _pool_gradient,
    **dict.fromkeys(_MODES, _resample),
}
