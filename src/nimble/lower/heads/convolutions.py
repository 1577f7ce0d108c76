"""Convolutions: plain, grouped and depthwise; of one, two and three dimensions; transposed.

There are kernels for images only. A sequence is an image one pixel wide. A convolution of volumes
is a sum of convolutions of images, one for each tap along the depth. A transposed convolution by
stride s is s x s ordinary ones, each of which writes every s-th pixel of every s-th row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from nimble.graph import Arg, DType, Ref, Role, Task, Value
from nimble.graph.edit import call, even_step
from nimble.lower.heads.opening import Conversion, Given, Opening, is_image, spread
from nimble.lower.heads.padding import taken_over
from nimble.lower.kernels import PANEL
from nimble.lower.layout import channels_last
from nimble.lower.program import Program

_MOST_TAPS, _MOST_CHANNELS = 121, 8192
_LEAST_OF_A_GROUP = 4
"""Input channels; with fewer, most of the multiplications are by zero."""
_LEAST_PIXELS = 32
_ZERO = Program(0, (("copy", (0.0,)),), (0,))


@dataclass(frozen=True)
class _Convolution:
    """What an operator asks for, a number for each spatial dimension."""

    x: Ref
    weight: Ref
    bias: Arg
    result: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def _convolution(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    groups, result = given["groups"], task.results[0]
    if not isinstance(x, Ref) or not isinstance(weight, Ref) or result is None:
        return None
    if opening.value(x).numel == 0 or opening.edit.values[result].numel == 0:
        return None
    if not opening.is_fixed(weight) and not _worth_packing(opening, result):
        return None
    dims = len(opening.value(x).shape) - 2
    assert isinstance(groups, int)
    asked = _Convolution(
        x, weight, bias, result,
        spread(given["stride"], (1,) * dims, dims), spread(given["padding"], (0,) * dims, dims),
        spread(given["dilation"], (1,) * dims, dims), groups,
    )  # fmt: skip
    if dims == 3:
        return None if given["transposed"] else _of_volumes(opening, task, asked)
    if dims not in (1, 2):
        return None
    return (_transposed if given["transposed"] else _plain)(opening, task, asked)


def _worth_packing(opening: Opening, result: int) -> bool:
    """Whether weights that are not known ahead of time are used for enough pixels."""
    batch, _, *space = opening.edit.values[result].shape
    return batch * math.prod(space) >= _LEAST_PIXELS


def _plain(opening: Opening, task: Task, asked: _Convolution) -> list[Task] | None:
    made: list[Task] = []
    x, before = taken_over(opening, asked.x)
    source = opening.image(made, x, task.origin)
    padding = tuple(p + q for p, q in zip(asked.padding, before, strict=True))
    target, copies = opening.as_image(asked.result, task.origin)
    weight, stride, dilation = asked.weight, asked.stride, asked.dilation
    if _is_patches(opening, source, asked, padding):
        wide = opening.value(weight).shape[3]
        source, weight = _of_patches(opening, source, wide), _patches(opening, weight)
        stride, dilation = (stride[0], 1), (dilation[0], 1)
    convolved = _one(
        opening, made, task.name, task.origin, source, weight, asked.bias, target, stride, padding,
        dilation, asked.groups,
    )  # fmt: skip
    return None if convolved is None else [*made, convolved, *copies]


# Patches: windows that lie side by side, as a vision transformer's. All pixels of a window's row
# follow each other in memory, so they are one pixel of many channels.


def _is_patches(opening: Opening, x: Ref, asked: _Convolution, padding: tuple[int, ...]) -> bool:
    image = opening.value(x)
    if len(image.shape) != 4 or asked.groups != 1:
        return False
    _, channels, _, width = image.shape
    wide = opening.value(asked.weight).shape[3]
    return (
        1 < wide == asked.stride[1]
        and padding[1] == 0
        and asked.dilation[1] == 1
        and width % wide == 0
        and image.strides[3] == channels
        and (channels == 1 or image.strides[1] == 1)
        and wide * channels <= _MOST_CHANNELS
    )


def _of_patches(opening: Opening, x: Ref, wide: int) -> Ref:
    """`wide` pixels as one."""
    image = opening.value(x)
    n, channels, high, width = image.shape
    shape = (n, channels * wide, high, width // wide)
    strides = (image.strides[0], 1, image.strides[2], channels * wide)
    return Ref(opening.edit.add_view(f"{image.name}.patches", x.id, shape, strides))


def _patches(opening: Opening, weight: Ref) -> Ref:
    """(out, in, high, wide) → (out, wide, in, high, 1), of which the packing makes (wide x in)
    channels."""
    value = opening.value(weight)
    out, channels, high, wide = value.shape
    o, c, h, w = value.strides
    shape, strides = (out, wide, channels, high, 1), (o, w, c, h, 1)
    return Ref(opening.edit.add_view(f"{value.name}.patches", weight.id, shape, strides))


def _one(
    opening: Opening, made: list[Task], name: str, origin: str, x: Ref, weight: Ref, bias: Arg,
    result: int, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
    groups: int, *, added: int | None = None, phased: bool = False, flip: bool = False,
) -> Task | None:  # fmt: skip
    """A convolution of an image by weights (out, in…, taps…), or (groups, out, in, taps…) if they
    are `phased`, if there is a kernel for it: its padding is that before the first row and column.
    With `flip`, the taps are in reverse order."""
    fixed = opening.is_fixed(weight)
    if not fixed and not phased:
        weight = _in_groups(opening, made, weight, groups, len(stride), origin)
    if not fixed:
        weight, padding = _live(opening, x, weight, result, stride, padding, dilation, flip)
    shape = opening.value(weight).shape
    kernel = shape[-len(stride) :]
    seen = None
    if not fixed and bias is None and added is None:
        seen = _seen(opening, x, result, stride)
    if seen is not None and _mixes(opening, seen, weight, result, padding):
        return _mixing(opening, name, origin, seen, weight, result)
    result_channels = opening.edit.values[result].shape[1]
    out, channels = result_channels, math.prod(shape) // math.prod(kernel) // result_channels
    depthwise = channels == 1 and groups > 1 and out == groups
    if math.prod(kernel) > _MOST_TAPS or channels > _MOST_CHANNELS:
        return None
    if groups > 1 and not depthwise and channels < _LEAST_OF_A_GROUP:
        return None
    taps = math.prod(kernel)
    if fixed:
        packed = (
            opening.depthwise(made, weight, taps, origin)
            if depthwise
            else opening.packed(made, weight, groups, (out, channels, taps), origin)
        )
    else:
        pack = opening.depthwise_from if depthwise else opening.packed_from
        packed = pack(made, weight, flip and taps > 1, origin)
    kwargs: tuple[tuple[str, Arg], ...] = (
        ("kernel", _pair(kernel, 1)),
        ("stride", _pair(stride, 1)),
        ("padding", _pair(padding, 0)),
        ("dilation", _pair(dilation, 1)),
        ("groups", groups),
    )
    if added is not None:
        kwargs = (*kwargs, ("operands", (Ref(added),)), ("tail", (("add", (0, 1)),)))
    op = "nimble.depthwise" if depthwise else "nimble.convolution"
    bias = opening.in_line(made, bias, origin)
    return call(name, op, (x, packed, bias), (result,), kwargs, origin)


# Weights that are not known ahead of time are packed at every call, in one go from where they lie,
# and only those that meet the image.


def _in_groups(
    opening: Opening, made: list[Task], weight: Ref, groups: int, dims: int, origin: str
) -> Ref:
    """(out, in…, taps…) → (groups, out, in, taps…)."""
    if len(opening.value(weight).shape) > 2 + dims:
        weight = opening.contiguous(made, weight, origin)
    value = opening.value(weight)
    out, *inside = value.shape[:-dims]
    step, *steps = value.strides[: len(value.shape) - dims]
    channels = math.prod(inside)
    shape = (groups, out // groups, channels, *value.shape[-dims:])
    strides = (out // groups * step, step, steps[-1], *value.strides[-dims:])
    return Ref(opening.edit.add_view(f"{value.name}.groups", weight.id, shape, strides))


def _live(
    opening: Opening, x: Ref, weight: Ref, result: int, stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], flip: bool,
) -> tuple[Ref, tuple[int, ...]]:  # fmt: skip
    """The taps that are ever multiplied by anything but padding, and the padding before them."""
    value, source, target = opening.value(weight), opening.value(x), opening.edit.values[result]
    shape, offset, before = list(value.shape), 0, list(padding)
    for d in range(len(stride)):
        taps = shape[3 + d]
        last = (target.shape[2 + d] - 1) * stride[d]
        live = [
            k
            for k in range(taps)
            if any(
                0 <= o + k * dilation[d] - padding[d] < source.shape[2 + d]
                for o in range(0, last + 1, stride[d])
            )
        ]
        if not live or live[0] * dilation[d] > padding[d]:
            continue
        first, count = live[0], live[-1] - live[0] + 1
        shape[3 + d] = count
        offset += (taps - first - count if flip else first) * value.strides[3 + d]
        before[d] -= first * dilation[d]
    if tuple(shape) == value.shape:
        return weight, padding
    offset *= value.dtype.itemsize
    name = f"{value.name}.live"
    live_taps = opening.edit.add_view(name, weight.id, tuple(shape), value.strides, offset)
    return Ref(live_taps), tuple(before)


def _seen(opening: Opening, x: Ref, result: int, stride: tuple[int, ...]) -> Ref | None:
    """The pixels that one tap meets."""
    value = opening.value(x)
    space = opening.edit.values[result].shape[2:]
    if any((n - 1) * s >= size for n, s, size in zip(space, stride, value.shape[2:], strict=True)):
        return None
    shape = (*value.shape[:2], *space)
    if shape == value.shape and set(stride) == {1}:
        return x
    steps = (step * n for step, n in zip(value.strides[2:], stride, strict=True))
    strides = (*value.strides[:2], *steps)
    return Ref(opening.edit.add_view(f"{value.name}.seen", x.id, shape, strides))


def _mixes(
    opening: Opening, x: Ref, weight: Ref, result: int, padding: tuple[int, ...]
) -> bool:  # fmt: skip
    """Whether each pixel is multiplied by the same matrix, which is larger than the image: it is
    then used where it lies."""
    value, source = opening.value(weight), opening.value(x)
    return (
        value.shape[0] == 1
        and set(value.shape[3:]) == {1}
        and set(padding) == {0}
        and value.numel >= source.numel
        and _is_matrix(source)
        and _is_matrix(opening.edit.values[result])
    )


def _is_matrix(image: Value) -> bool:
    """Whether its pixels are the rows of one."""
    batch, _, *space = zip(image.shape, image.strides, strict=True)
    sizes, steps = zip(batch, *space, strict=True)
    return is_image(image) and even_step(sizes, steps) is not None


def _mixing(opening: Opening, name: str, origin: str, x: Ref, weight: Ref, result: int) -> Task:
    value = opening.value(weight)
    _, out, inside = value.shape[:3]
    _, o, i = value.strides[:3]
    w = opening.edit.add_view(f"{value.name}.matrix", weight.id, (inside, out), (i, o))
    room = opening.edit.add_root(
        f"{name}.scratch", Role.INTERMEDIATE, DType.FLOAT32, (inside * PANEL,)
    )
    return call(name, "nimble.mixing", (x, Ref(w)), (result, room), (), origin)


def _pair(numbers: tuple[int, ...], otherwise: int) -> tuple[int, ...]:
    """For rows and columns. A sequence is an image one column wide."""
    return numbers if len(numbers) == 2 else (*numbers, otherwise)


# Volumes


def _of_volumes(opening: Opening, task: Task, asked: _Convolution) -> list[Task] | None:
    """The sum over the taps along the depth of convolutions of images, whose batch are the depths
    of the result."""
    made: list[Task] = []
    source = _with_depths(opening, made, asked, task.origin)
    target = asked.result
    volume = opening.edit.values[target]
    copies: list[Task] = []
    if volume.strides[1] != 1 and volume.shape[1] != 1:
        target = _volume(opening, f"{volume.name}.channels_last", volume.shape)
        name = opening.name("relay")
        copies.append(call(name, "nimble.copy", (Ref(target),), (asked.result,), (), task.origin))
    deep = opening.value(asked.weight).shape[2]
    for n in range(volume.shape[0]):
        before: int | None = None
        for tap in range(deep):
            last = tap == deep - 1
            images = _images(
                opening, source, n, tap * asked.dilation[0], asked.stride[0], volume.shape[2]
            )
            result = _images(opening, target, n, 0, 1, volume.shape[2]) if last else _sum(
                opening, f"{volume.name}.{n}.{tap}", volume.shape
            )  # fmt: skip
            convolved = _one(
                opening, made, f"{task.name}.{n}.{tap}", task.origin, Ref(images),
                _tap(opening, asked.weight, tap), asked.bias if tap == 0 else None, result,
                asked.stride[1:], asked.padding[1:], asked.dilation[1:], asked.groups, added=before,
            )  # fmt: skip
            if convolved is None:
                return None
            made.append(convolved)
            before = result
    return [*made, *copies]


def _with_depths(opening: Opening, made: list[Task], asked: _Convolution, origin: str) -> int:
    """The input with its channels innermost and its padding along the depth there in memory."""
    value = opening.value(asked.x)
    padding = asked.padding[0]
    laid = value.shape[1] == 1 or value.strides[1] == 1
    if laid and not padding:
        return asked.x.id
    n, c, d, h, w = value.shape
    volume = _volume(opening, f"{value.name}.deep", (n, c, d + 2 * padding, h, w))
    if padding:
        kwargs: tuple[tuple[str, Arg], ...] = (("before", (0, 0, padding, 0, 0)), ("value", 0.0))
        made.append(call(opening.name("pad"), "nimble.pad", (asked.x,), (volume,), kwargs, origin))
    else:
        made.append(call(opening.name("relay"), "nimble.copy", (asked.x,), (volume,), (), origin))
    return volume


def _volume(opening: Opening, name: str, shape: tuple[int, ...]) -> int:
    return opening.edit.add_root(
        name, Role.INTERMEDIATE, DType.FLOAT32, shape, channels_last(shape)
    )


def _sum(opening: Opening, name: str, shape: tuple[int, ...]) -> int:
    """Room for a sum over some of the taps."""
    _, c, d, h, w = shape
    return _volume(opening, name, (d, c, h, w))


def _images(opening: Opening, v: int, n: int, first: int, step: int, count: int) -> int:
    """Every `step`-th depth of a volume of the batch, as a batch of images."""
    value = opening.edit.values[v]
    batch, channel, depth, row, column = value.strides
    offset = (n * batch + first * depth) * value.dtype.itemsize
    _, c, _, h, w = value.shape
    return opening.edit.add_view(
        f"{value.name}[{n}]", v, (count, c, h, w), (step * depth, channel, row, column), offset
    )


def _tap(opening: Opening, weight: Ref, tap: int) -> Ref:
    value = opening.value(weight)
    shape, strides = value.shape[:2] + value.shape[3:], value.strides[:2] + value.strides[3:]
    offset = tap * value.strides[2] * value.dtype.itemsize
    return Ref(opening.edit.add_view(f"{value.name}.{tap}", weight.id, shape, strides, offset))


# Transposed


@dataclass(frozen=True)
class _Phase:
    """Every stride-th row (or column) of the result, beginning with row `start`."""

    start: int
    count: int
    first_tap: int
    """Of the weights in reverse order."""
    tap_step: int
    taps: int
    dilation: int
    shift: int
    """The input row that the first tap of the first row reads; before the first where negative."""


def _phases(
    size: int, out: int, kernel: int, stride: int, padding: int, dilation: int
) -> list[_Phase] | None:
    """Row o = s q + start of the result is made of the taps k with s | o + padding - k dilation."""
    common = math.gcd(stride, dilation)
    found = []
    for start in range(min(stride, out)):
        taps = [k for k in range(kernel) if (start + padding - k * dilation) % stride == 0]
        if not taps:
            found.append(_Phase(start, -(-(out - start) // stride), 0, 1, 0, 1, 0))
            continue
        shift = (start + padding - taps[-1] * dilation) // stride
        if shift >= size:
            return None
        found.append(
            _Phase(
                start, -(-(out - start) // stride), kernel - 1 - taps[-1], stride // common,
                len(taps), dilation // common, shift,
            )
        )  # fmt: skip
    return found


def _transposed(opening: Opening, task: Task, asked: _Convolution) -> list[Task] | None:
    made: list[Task] = []
    weight, groups = opening.value(asked.weight), asked.groups
    dims = len(asked.stride)
    source = opening.image(made, asked.x, task.origin)
    target, copies = opening.as_image(asked.result, task.origin)
    image, result = opening.value(source), opening.edit.values[target]
    phases = [
        _phases(
            image.shape[2 + d], result.shape[2 + d], weight.shape[2 + d], asked.stride[d],
            asked.padding[d], asked.dilation[d],
        )
        for d in range(dims)
    ]  # fmt: skip
    if any(found is None for found in phases):
        return None
    over = tuple(range(2, 2 + dims))
    flipped = asked.weight
    fixed = opening.is_fixed(asked.weight)
    if fixed and any(weight.shape[d] > 1 for d in over):
        flipped = opening.once(
            ("flipped", *opening.same(asked.weight.id)),
            lambda: opening.task(
                made, "aten.flip.default", weight.shape, (asked.weight, over), task.origin
            ),
        )
    columns = (phases[1] or []) if dims == 2 else [_Phase(0, 1, 0, 1, 1, 1, 0)]
    for row, column in product(phases[0] or [], columns):
        each = (row, column)[:dims]
        if not row.taps or not column.taps:
            if asked.bias is not None:
                return None
            place = _every(opening, target, asked.stride, each)
            program = (("program", _ZERO.to_arg()),)
            name = f"{task.name}.{row.start}.{column.start}"
            made.append(call(name, "nimble.pointwise", (), (place,), program, task.origin))
            continue
        convolved = _one(
            opening, made, f"{task.name}.{row.start}.{column.start}", task.origin,
            _shifted(opening, source, each), _taps(opening, flipped, groups, each, not fixed),
            asked.bias, _every(opening, target, asked.stride, each), (1,) * dims,
            tuple(max(0, -p.shift) for p in each), tuple(p.dilation for p in each), groups,
            phased=True, flip=not fixed,
        )  # fmt: skip
        if convolved is None:
            return None
        made.append(convolved)
    return [*made, *copies]


def _shifted(opening: Opening, x: Ref, phases: tuple[_Phase, ...]) -> Ref:
    """The image from the first row and column that a phase reads."""
    value = opening.value(x)
    cut = [max(0, p.shift) for p in phases]
    shape = (*value.shape[:2], *(n - c for n, c in zip(value.shape[2:], cut, strict=True)))
    steps = sum(c * s for c, s in zip(cut, value.strides[2:], strict=True))
    offset = steps * value.dtype.itemsize
    return Ref(opening.edit.add_view(f"{value.name}.cut", x.id, shape, value.strides, offset))


def _taps(
    opening: Opening, flipped: Ref, groups: int, phases: tuple[_Phase, ...], back: bool
) -> Ref:
    """(in, out, taps…) → (groups, out, in, the phase's taps…); `back`, of weights that are not
    flipped yet."""
    value = opening.value(flipped)
    inside, out = value.shape[:2]
    a, b, *steps = value.strides
    shape = (groups, out, inside // groups, *(p.taps for p in phases))
    strides = (inside // groups * a, b, a,
               *(s * p.tap_step for s, p in zip(steps, phases, strict=True)))  # fmt: skip
    starts = [
        kernel - 1 - p.first_tap - (p.taps - 1) * p.tap_step if back else p.first_tap
        for p, kernel in zip(phases, value.shape[2:], strict=True)
    ]
    first = sum(start * s for start, s in zip(starts, steps, strict=True))
    offset = first * value.dtype.itemsize
    return Ref(opening.edit.add_view("taps", flipped.id, shape, strides, offset))


def _every(opening: Opening, v: int, stride: tuple[int, ...], phases: tuple[_Phase, ...]) -> int:
    """The pixels of the result that a phase writes."""
    value = opening.edit.values[v]
    shape = (*value.shape[:2], *(p.count for p in phases))
    strides = (*value.strides[:2], *(s * t for s, t in zip(value.strides[2:], stride, strict=True)))
    first = sum(p.start * s for p, s in zip(phases, value.strides[2:], strict=True))
    offset = first * value.dtype.itemsize
    return opening.edit.add_view(f"{value.name}.phase", v, shape, strides, offset)


# Backward


def _backward(opening: Opening, task: Task, given: Given) -> list[Task] | None:
    """Of an ordinary convolution of images: its input's gradient is a transposed convolution of its
    result's, its weights' a sum over all pixels, and its bias's too."""
    gradient, x, weight = (given[name] for name in ("grad_output", "input", "weight"))
    for_input, for_weight, for_bias = task.results
    groups = given["groups"]
    if not all(isinstance(arg, Ref) for arg in (gradient, x, weight)) or given["transposed"]:
        return None
    assert isinstance(gradient, Ref)
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    assert isinstance(groups, int)
    if len(opening.value(x).shape) != 4 or 0 in (
        opening.value(x).numel, opening.value(gradient).numel
    ):  # fmt: skip
        return None
    asked = _Convolution(
        gradient, weight, None, -1, spread(given["stride"], (1, 1)),
        spread(given["padding"], (0, 0)), spread(given["dilation"], (1, 1)), groups,
    )  # fmt: skip
    made: list[Task] = []
    if for_input is not None and not opening.unread(for_input):
        named = replace(task, name=f"{task.name}.input")
        back = _transposed(opening, named, replace(asked, result=for_input))
        if back is None:
            return None
        made += back
    if for_weight is not None:
        summed = _weights(opening, made, task, asked, x, for_weight)
        if summed is None:
            return None
        made.append(summed)
    if for_bias is not None:
        kwargs: tuple[tuple[str, Arg], ...] = (("dims", (0, 2, 3)), ("kind", "sum"))
        name = f"{task.name}.bias"
        made.append(call(name, "nimble.reduce", (gradient,), (for_bias,), kwargs, task.origin))
    return made


def _weights(
    opening: Opening, made: list[Task], task: Task, asked: _Convolution, x: Ref, result: int
) -> Task | None:
    out, inside, *kernel = opening.edit.values[result].shape
    depthwise = inside == 1 and asked.groups == out > 1
    if asked.groups > 1 and not (depthwise and opening.value(x).shape[1] == out):
        return None
    images = (
        opening.image(made, asked.x, task.origin),
        opening.image(made, x, task.origin),
    )
    kwargs: tuple[tuple[str, Arg], ...] = (
        ("kernel", tuple(kernel)),
        ("stride", asked.stride),
        ("padding", asked.padding),
        ("dilation", asked.dilation),
    )
    op = "nimble.depthwise_gradient" if depthwise else "nimble.weight_gradient"
    return call(f"{task.name}.weight", op, images, (result,), kwargs, task.origin)


CONVERSIONS: dict[str, Conversion] = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _backward,
}
