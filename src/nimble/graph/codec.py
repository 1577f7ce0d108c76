"""A graph as plain lists, dicts, strings and numbers, as JSON holds them, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from math import isfinite
from typing import Any, NoReturn, TypeVar

from nimble.errors import GraphError
from nimble.graph.ir import Arg, DType, Graph, Ref, Role, Symbol, Task, Value
from nimble.graph.verify import verify

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_MOST_DIMENSIONS = 64
_DEEPEST_ARGUMENT = 8
_LONGEST_NAME = 1 << 16


def encode(graph: Graph) -> dict[str, Any]:
    """The graph as data that `json.dumps` takes and `decode` reads.

    >>> decode(encode(graph)) == graph
    """
    return {
        "name": graph.name,
        "values": [
            [v.name, v.role.value, v.dtype.value, [*v.shape], [*v.strides], v.base, v.offset,
             v.overwrites]
            for v in graph.values
        ],
        "tasks": [
            [t.name, t.op, [_encode_arg(a) for a in t.args],
             [[name, _encode_arg(a)] for name, a in t.kwargs], [*t.reads], [*t.writes],
             [*t.results], t.kernel, t.cost, t.origin]
            for t in graph.tasks
        ],
        "inputs": [*graph.inputs],
        "outputs": [*graph.outputs],
        "prologue": None if graph.prologue is None else encode(graph.prologue),
    }  # fmt: skip


def decode(data: object) -> Graph:
    """The graph in `data`, verified; GraphError if there is anything wrong with it."""
    return verify(_graph(data, "graph", has_prologue=True))


def _encode_arg(arg: Arg) -> Any:
    if isinstance(arg, Ref):
        return {"value": arg.id}
    if isinstance(arg, Symbol):
        return {"symbol": [arg.kind, arg.name]}
    if isinstance(arg, DType):
        return {"dtype": arg.value}
    if isinstance(arg, tuple):
        return [_encode_arg(item) for item in arg]
    if isinstance(arg, complex):
        return {"complex": [_encode_arg(arg.real), _encode_arg(arg.imag)]}
    if isinstance(arg, float) and not isfinite(arg):
        # JSON has no infinity; the bits also keep which NaN it is.
        return {"bits": struct.pack(">d", arg).hex()}
    return arg


def _graph(data: object, where: str, has_prologue: bool) -> Graph:
    fields = _dict(data, where, "name", "values", "tasks", "inputs", "outputs", "prologue")
    prologue = None
    if fields["prologue"] is not None:
        if not has_prologue:
            _fail(f"{where}.prologue", "nothing, as a prologue has none", fields["prologue"])
        prologue = _graph(fields["prologue"], f"{where}.prologue", has_prologue=False)
    values = [
        _value(item, i, f"{where}.values[{i}]")
        for i, item in enumerate(_list(fields["values"], f"{where}.values"))
    ]
    return Graph(
        _text(fields["name"], f"{where}.name"),
        tuple(values),
        _each(fields["tasks"], f"{where}.tasks", _task),
        _each(fields["inputs"], f"{where}.inputs", _size),
        _each(fields["outputs"], f"{where}.outputs", _size),
        prologue,
    )


def _value(data: object, id: int, where: str) -> Value:
    name, role, dtype, shape, strides, base, offset, overwrites = _list(data, where, 8)
    value = Value(
        id,
        _text(name, f"{where} name"),
        _member(Role, role, f"{where} role"),
        _member(DType, dtype, f"{where} dtype"),
        _each(shape, f"{where} shape", _size),
        _each(strides, f"{where} strides", _size),
        _optional(base, f"{where} base", _size),
        _size(offset, f"{where} offset"),
        _optional(overwrites, f"{where} overwrites", _size),
    )
    if len(value.shape) > _MOST_DIMENSIONS or len(value.strides) != len(value.shape):
        _fail(where, f"as many strides as sizes, at most {_MOST_DIMENSIONS}", value.shape)
    if max(value.offset + value.span, value.numel * value.dtype.itemsize) >= 1 << 63:
        _fail(where, "a tensor of less than 2^63 bytes", value.shape)
    return value


def _task(data: object, where: str) -> Task:
    name, op, args, kwargs, reads, writes, results, kernel, cost, origin = _list(data, where, 10)
    named = _each(kwargs, f"{where} kwargs", _named_arg)
    if len({key for key, _ in named}) != len(named):
        _fail(f"{where} kwargs", "each name once", [key for key, _ in named])
    return Task(
        _text(name, f"{where} name"),
        _text(op, f"{where} op"),
        _each(args, f"{where} args", _arg),
        named,
        _each(reads, f"{where} reads", _size),
        _each(writes, f"{where} writes", _size),
        _each(results, f"{where} results", lambda v, at: _optional(v, at, _size)),
        _text(kernel, f"{where} kernel"),
        _size(cost, f"{where} cost"),
        _text(origin, f"{where} origin"),
    )


def _named_arg(data: object, where: str) -> tuple[str, Arg]:
    name, arg = _list(data, where, 2)
    return _text(name, where), _arg(arg, where)


def _arg(data: object, where: str, depth: int = 0) -> Arg:
    if data is None or type(data) in (bool, str):
        return data  # type: ignore[return-value]
    if type(data) is int:
        if not -(1 << 63) <= data < 1 << 64:
            _fail(where, "an integer of 64 bits", data)
        return data
    if type(data) is float:
        return data
    if type(data) is list:
        if depth == _DEEPEST_ARGUMENT:
            _fail(where, f"lists nested at most {depth} deep", data)
        return tuple(_arg(item, where, depth + 1) for item in data)
    if type(data) is dict and len(data) == 1:
        kind, held = next(iter(data.items()))
        if kind == "value":
            return Ref(_size(held, where))
        if kind == "dtype":
            return _member(DType, held, where)
        if kind == "symbol":
            what, name = _list(held, where, 2)
            return Symbol(_text(what, where), _text(name, where))
        if kind == "complex":
            real, imaginary = (_float(part, where) for part in _list(held, where, 2))
            return complex(real, imaginary)
        if kind == "bits":
            return _float(data, where)
    return _fail(where, "an argument", data)


def _float(data: object, where: str) -> float:
    if type(data) is float:
        return data
    bits = _text(_dict(data, where, "bits")["bits"], where)
    if len(bits) != 16 or not set(bits) <= set("0123456789abcdef"):
        _fail(where, "a float as 16 hexadecimal digits", bits)
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    return float(number)


def _fail(where: str, expected: str, came: object) -> NoReturn:
    shown = repr(came) if isinstance(came, bool | float | str | None) else type(came).__name__
    raise GraphError(f"{where}: expected {expected}, got {shown[:100]}")


def _dict(data: object, where: str, *keys: str) -> dict[str, Any]:
    if type(data) is not dict or set(data) != set(keys):
        _fail(where, f"a dict with the keys {', '.join(keys)}", data)
    return data


def _list(data: object, where: str, length: int | None = None) -> list[Any]:
    if type(data) is not list or length not in (None, len(data)):
        _fail(where, "a list" if length is None else f"a list of {length}", data)
    return data


def _each(data: object, where: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
    return tuple(read(item, f"{where}[{i}]") for i, item in enumerate(_list(data, where)))


def _text(data: object, where: str) -> str:
    if type(data) is not str or len(data) > _LONGEST_NAME:
        _fail(where, f"a string of at most {_LONGEST_NAME} characters", data)
    return data


def _size(data: object, where: str) -> int:
    if type(data) is not int or not 0 <= data < 1 << 63:
        _fail(where, "a non-negative integer of 63 bits", data)
    return data


def _optional(data: object, where: str, read: Callable[[object, str], T]) -> T | None:
    return None if data is None else read(data, where)


def _member(kind: type[E], data: object, where: str) -> E:
    names = {member.value: member for member in kind}
    if type(data) is not str or data not in names:
        _fail(where, f"one of {', '.join(names)}", data)
    return names[data]
