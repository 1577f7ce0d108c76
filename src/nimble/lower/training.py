"""Batch norm in training: sums over all pixels, and arithmetic on images around them.

So opened, the arithmetic joins that of activations before and after it.
"""

from __future__ import annotations

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task
from nimble.graph.edit import call
from nimble.rewrite.operators import arguments

_FORWARD = "aten._native_batch_norm_legit_functional.default"
_WITHOUT_STATISTICS = "aten._native_batch_norm_legit.no_stats"
_BACKWARD = "aten.native_batch_norm_backward.default"


def open_training_norms(graph: Graph) -> Graph:
    edit = Edit(graph)
    opened = False
    for task in graph.tasks:
        made = None
        if task.op in (_FORWARD, _WITHOUT_STATISTICS):
            made = _Norm(edit, task).forward()
        elif task.op == _BACKWARD:
            made = _Norm(edit, task).backward()
        opened |= made is not None
        edit.tasks.extend([task] if made is None else made)
    return edit.done() if opened else graph


class _Norm:
    """One operator, and the tasks that it becomes."""

    def __init__(self, edit: Edit, task: Task) -> None:
        self._edit = edit
        self._task = task
        self._given = arguments(task)
        self._made: list[Task] = []
        x = self._given["input"]
        assert isinstance(x, Ref)
        self._x = x
        self._image = edit.values[x.id]
        touched = (edit.values[v] for v in (*task.reads, *task.writes))
        self._fits = (
            all(value.dtype is DType.FLOAT32 for value in touched)
            and len(self._image.shape) >= 2
            and self._image.numel > 0
        )

    @property
    def _count(self) -> int:
        return self._image.numel // self._image.shape[1]

    def forward(self) -> list[Task] | None:
        """y = (x - mean) * scale + shift, and the statistics that this leaves."""
        given, count = self._given, self._count
        if not self._fits or not given["training"] or count < 2:
            return None
        result, mean_place, root_place, *running = self._task.results
        mean, variance = self._vector(mean_place), self._vector()
        self._add("nimble.moments", (self._x,), (mean, variance))
        shifted = self._channels("aten.add.Tensor", Ref(variance), given["eps"])
        root = self._channels("aten.rsqrt.default", shifted, place=root_place)
        scale = root
        if isinstance(given["weight"], Ref):
            scale = self._channels("aten.mul.Tensor", root, given["weight"])
        shift = self._channels(
            "aten.neg.default", self._channels("aten.mul.Tensor", Ref(mean), scale)
        )
        if isinstance(given["bias"], Ref):
            shift = self._channels("aten.add.Tensor", shift, given["bias"])
        scaled = self._pixels("aten.mul.Tensor", self._x, self._wide(scale))
        self._pixels("aten.add.Tensor", scaled, self._wide(shift), place=result)
        if running:
            momentum = given["momentum"]
            assert isinstance(momentum, float)
            unbiased = momentum * count / (count - 1)
            self._average(given["running_mean"], Ref(mean), momentum, momentum, running[0])
            self._average(given["running_var"], Ref(variance), momentum, unbiased, running[1])
        return self._made

    def backward(self) -> list[Task] | None:
        """With g the gradient of the result: that of the input is (g + x b + c) a, where a, b and c
        are numbers for each channel."""
        given = self._given
        gradient, mean, root = given["grad_out"], given["save_mean"], given["save_invstd"]
        if not self._fits or not given["train"] or not isinstance(root, Ref):
            return None
        assert isinstance(gradient, Ref)
        assert isinstance(mean, Ref)
        for_input, for_weight, for_bias = self._task.results
        total, product = self._vector(for_bias), self._vector()
        self._add("nimble.gradient_sums", (self._x, gradient, mean), (total, product))
        scaled = self._channels("aten.mul.Tensor", Ref(product), root, place=for_weight)
        if for_input is None:
            return self._made
        a = root
        if isinstance(given["weight"], Ref):
            a = self._channels("aten.mul.Tensor", root, given["weight"])
        # Only now is g needed, so that it is read but once more.
        along = self._channels("aten.mul.Tensor", scaled, root)
        b = self._channels("aten.mul.Tensor", along, -1.0 / self._count)
        plain = self._channels("aten.mul.Tensor", Ref(total), -1.0 / self._count)
        c = self._channels("aten.sub.Tensor", plain, self._channels("aten.mul.Tensor", b, mean))
        other = self._pixels("aten.mul.Tensor", self._x, self._wide(b))
        shifted = self._pixels("aten.add.Tensor", other, self._wide(c))
        both = self._pixels("aten.add.Tensor", shifted, gradient)
        self._pixels("aten.mul.Tensor", both, self._wide(a), place=for_input)
        return self._made

    def _average(self, old: Arg, new: Ref, left: float, taken: float, place: int | None) -> None:
        kept = self._channels("aten.mul.Tensor", old, 1.0 - left)
        self._channels("aten.add.Tensor", kept, new, place=place, alpha=taken)

    # Tasks

    def _vector(self, place: int | None = None) -> int:
        """Room for a number for each channel."""
        if place is not None:
            return place
        name = f"{self._task.name}.{len(self._made)}.{len(self._edit.values)}"
        shape = (self._image.shape[1],)
        return self._edit.add_root(name, Role.INTERMEDIATE, DType.FLOAT32, shape)

    def _channels(self, op: str, *args: Arg, place: int | None = None, **kwargs: Arg) -> Ref:
        v = self._vector(place)
        self._add(op, args, (v,), tuple(kwargs.items()))
        return Ref(v)

    def _pixels(self, op: str, *args: Arg, place: int | None = None) -> Ref:
        if place is None:
            image = self._image
            name = f"{self._task.name}.{len(self._made)}"
            place = self._edit.add_root(
                name, Role.INTERMEDIATE, DType.FLOAT32, image.shape, image.strides
            )
        self._add(op, args, (place,))
        return Ref(place)

    def _wide(self, v: Ref) -> Ref:
        """A number for each channel, as an image of one pixel."""
        name = f"{self._edit.values[v.id].name}.wide"
        shape = (self._image.shape[1], *(1,) * (len(self._image.shape) - 2))
        return Ref(self._edit.add_view(name, v.id, shape, (1,) * len(shape)))

    def _add(
        self,
        op: str,
        args: tuple[Arg, ...],
        results: tuple[int, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
    ) -> None:
        name = f"{self._task.name}.{len(self._made)}"
        self._made.append(call(name, op, args, results, kwargs, self._task.origin))
