"""Writes a graph by hand for a test: shapes and dtypes of results come from PyTorch."""

from __future__ import annotations

from dataclasses import replace

import torch
from reference import argument, flat, operator

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task, call, verify


class Sketch:
    """Every method adds something and returns the id of its value.

    >>> s = Sketch()
    >>> x = s.root("input", "x", 2, 3)
    >>> y = s.call("aten.relu.default", Ref(x))
    >>> graph = s.graph(y)
    """

    def __init__(self) -> None:
        self.edit = Edit(Graph("sketch", (), (), (), ()))

    def root(self, role: str, name: str, *shape: int, dtype: str = "float32") -> int:
        return self.edit.add_root(name, Role(role), DType(dtype), shape)

    def view(self, of: int, shape: tuple[int, ...], strides: tuple[int, ...], at: int = 0) -> int:
        offset = at * self.edit.values[of].dtype.itemsize
        return self.edit.add_view(
            f"view of {self.edit.values[of].name}", of, shape, strides, offset
        )

    def transpose(self, of: int) -> int:
        value = self.edit.values[of]
        return self.view(of, value.shape[::-1], value.strides[::-1])

    def call(self, op: str, *args: Arg, **kwargs: Arg) -> int:
        return self.calls(op, *args, **kwargs)[0]

    def calls(self, op: str, *args: Arg, **kwargs: Arg) -> tuple[int, ...]:
        """A task and all of its results."""
        returned = operator(op)(
            *(argument(a, self._empty) for a in args),
            **{name: argument(a, self._empty) for name, a in kwargs.items()},
        )
        name = f"{op.split('.')[1]}_{len(self.edit.tasks)}"
        results = tuple(
            self.edit.add_root(
                f"{name}.{i}" if i else name,
                Role.INTERMEDIATE,
                DType(str(tensor.dtype).removeprefix("torch.")),
                tuple(tensor.shape),
                tensor.stride(),
            )
            for i, tensor in enumerate(flat(returned))
        )
        self.edit.tasks.append(call(name, op, args, results, tuple(kwargs.items())))
        return results

    def draw(self, token: int, op: str, *args: Arg) -> tuple[int, int]:
        """A task that draws random numbers: its result, and the token after it."""
        result = self.call(op, *args)
        after = self.edit.add_root("token", Role.INTERMEDIATE, DType.TOKEN, ())
        task = self.edit.tasks[-1]
        self.edit.tasks[-1] = replace(
            task, reads=(*task.reads, token), writes=(*task.writes, after)
        )
        return result, after

    def update(self, state: int, new: int) -> int:
        """A task that copies a value over a state, and the version that it writes."""
        old = self.edit.values[state]
        version = self.edit.add_root(f"{old.name}'", old.role, old.dtype, old.shape, old.strides)
        self.edit.values[version] = replace(self.edit.values[version], overwrites=state)
        self.edit.tasks.append(
            Task(
                f"update_{len(self.edit.tasks)}",
                "aten.copy_.default",
                (Ref(state), Ref(new)),
                reads=(state, new),
                writes=(version,),
                results=(version,),
            )
        )
        return version

    def graph(self, *outputs: int) -> Graph:
        handed = {self.edit.content(v).id for v in outputs}
        values = tuple(
            replace(v, role=Role.OUTPUT)
            if v.role is Role.INTERMEDIATE and self.edit.content(v.id).id in handed
            else v
            for v in self.edit.values
        )
        inputs = tuple(v.id for v in values if v.role is Role.INPUT and v.is_root)
        return verify(Graph("sketch", values, tuple(self.edit.tasks), inputs, outputs))

    def _empty(self, id: int) -> torch.Tensor:
        value = self.edit.values[id]
        dtype = getattr(torch, value.dtype.value)
        return torch.zeros(value.span, dtype=dtype).as_strided(value.shape, value.strides)
