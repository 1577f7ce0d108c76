"""A graph while it is being built: the values and tasks so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nimble.graph import (
    DType,
    Ref,
    Role,
    Task,
    Value,
    contiguous_strides,
    is_dense,
)


class Draft:
    """Values get their ids as they are added."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.tasks: list[Task] = []
        self._token: int | None = None

    def add(
        self,
        name: str,
        role: Role,
        dtype: DType,
        shape: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        **more: Any,
    ) -> int:
        """A new value; its id."""
        self.values.append(Value(len(self.values), name, role, dtype, shape, strides, **more))
        return self.values[-1].id

    def add_like(self, id: int, **changes: Any) -> int:
        """A new value, the same as another but for `changes`; its id."""
        self.values.append(replace(self.values[id], id=len(self.values), **changes))
        return self.values[-1].id

    def content(self, id: int) -> Value:
        """The value whose contents `id` shows: itself, or what it is a view of."""
        base = self.values[id].base
        return self.values[id if base is None else base]

    def next_token(self) -> tuple[int, int]:
        """The order token to read, and a new one to write."""
        if self._token is None:
            self._token = self.add("rng", Role.STATE, DType.TOKEN)
        old = self._token
        self._token = self.add(f"rng.{len(self.values)}", Role.INTERMEDIATE, DType.TOKEN)
        return old, self._token

    def copy(self, id: int, strides: tuple[int, ...] | None = None) -> int:
        """A task that copies a value, with other strides if those are given; the copy's id."""
        value = self.values[id]
        if strides is None:
            strides = value.strides if is_dense(value) else contiguous_strides(value.shape)
        name = f"{value.name}.copy.{len(self.values)}"
        copy = self.add_like(
            id, name=name, role=Role.INTERMEDIATE, strides=strides, base=None, offset=0
        )
        self.tasks.append(
            Task(
                name=name,
                op="aten.clone.default",
                args=(Ref(id),),
                reads=(id,),
                writes=(copy,),
                results=(copy,),
            )
        )
        return copy
