"""Pointwise operators as instructions on registers: what a fused chain is made of.

An instruction is `(name, operand, …)`. While a chain is being built an operand is a `Ref`, a float,
or the number of an earlier instruction; `Program` numbers its inputs first, then the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from nimble.graph import Arg, DType, Graph, Ref, Task
from nimble.rewrite.operators import arguments

Operand = Ref | float | int
"""A value, a number written as float, or the place of an earlier instruction of the same task."""
Instruction = tuple[str, tuple[Operand, ...]]
Given = dict[str, Arg]
MOST_DIMS = 6
MOST_INPUTS = 12
_MOST_INSTRUCTIONS = 48
_MOST_OPERANDS = 32
"""Inputs and results. That many, and so many numbers, `native/kernels/program.h` has room for."""
_MOST_NUMBERS = 32
_TIMES_TRUTH = "aten.mul.Tensor"
"""Takes truth values too, as 0 and 1, and gives numbers."""


@dataclass(frozen=True, slots=True)
class Program:
    """Registers 0 to `inputs`-1 hold the inputs; instruction i writes register inputs + i.

    Operands of instructions are registers (int) or immediate numbers (float)."""

    inputs: int
    instructions: tuple[tuple[str, tuple[int | float, ...]], ...]
    outputs: tuple[int, ...]

    def to_arg(self) -> Arg:
        return (
            self.inputs,
            tuple((name, operands) for name, operands in self.instructions),
            self.outputs,
        )

    @staticmethod
    def of(task: Task) -> Program:
        """That of a fused task."""
        arg: Any = dict(task.kwargs)["program"]
        return Program(*arg)

    def only(
        self, outputs: Sequence[int], at_hand: Collection[int] = ()
    ) -> tuple[Program, list[int]]:
        """What computes some of the outputs, by their places, and the registers that it takes: of
        the inputs, and of those that are `at_hand`."""
        needed = {self.outputs[place] for place in outputs}
        taken = set()
        for r in range(self.inputs + len(self.instructions) - 1, -1, -1):
            if r in needed and (r < self.inputs or r in at_hand):
                taken.add(r)
            elif r in needed:
                _, operands = self.instructions[r - self.inputs]
                needed.update(o for o in operands if not isinstance(o, float))
        made = sorted(needed - taken)
        register = {old: new for new, old in enumerate((*sorted(taken), *made))}
        code = tuple(
            (name, tuple(o if isinstance(o, float) else register[o] for o in operands))
            for name, operands in (self.instructions[r - self.inputs] for r in made)
        )
        results = tuple(register[self.outputs[place]] for place in outputs)
        return Program(len(taken), code, results), sorted(taken)


def fits(code: Sequence[Instruction], inputs: int, results: int) -> bool:
    """Whether a kernel has room for all of this."""
    if len(code) > _MOST_INSTRUCTIONS or inputs + results > _MOST_OPERANDS:
        return False
    numbers = {str(o) for _, operands in code for o in operands if isinstance(o, float)}
    defaults = 2 * any(name == "softplus" for name, _ in code)
    return len(numbers) + defaults <= _MOST_NUMBERS


def instructions(graph: Graph, task: Task) -> tuple[Instruction, ...] | None:
    """What a task computes for each element, or None if that cannot be told in instructions."""
    builder = _OPERATORS.get(task.op)
    if builder is None or len(task.results) != 1 or task.results[0] is None:
        return None
    with_truth = (DType.FLOAT32, DType.BOOL)
    read: tuple[DType, ...] = (
        with_truth if task.op in LOGIC or task.op == _TIMES_TRUTH else (DType.FLOAT32,)
    )
    written: tuple[DType, ...] = with_truth if task.op in LOGIC else (DType.FLOAT32,)
    if task.op == "aten._to_copy.default":
        read = written = (*with_truth, DType.BFLOAT16)
    if not all(
        graph[v].dtype in dtypes
        for values, dtypes in ((task.reads, read), (task.writes, written))
        for v in values
    ):
        return None
    if len(graph[task.results[0]].shape) > MOST_DIMS or graph[task.results[0]].numel == 0:
        return None
    built = builder(arguments(task))
    if built is None or not all(map(_is_known, (o for _, os in built for o in os))):
        return None
    return tuple(built)


POINTWISE: frozenset[str]
LOGIC: frozenset[str]
Builder = Callable[[Given], list[Instruction] | None]


def _is_known(operand: object) -> bool:
    return isinstance(operand, Ref | float) or type(operand) is int


def _operand(arg: Arg) -> Operand:
    """A number becomes a float: ints stand for earlier instructions."""
    if isinstance(arg, Ref):
        return arg
    if isinstance(arg, bool | int | float):
        return float(arg)
    raise TypeError(f"{arg!r} is no operand")


def _unary(name: str) -> Builder:
    return lambda given: [(name, (_operand(given["self"]),))]


def _binary(name: str) -> Builder:
    return lambda given: [(name, (_operand(given["self"]), _operand(given["other"])))]


def _sum(given: Given, sign: int) -> list[Instruction] | None:
    a, b, alpha = given["self"], given["other"], given["alpha"]
    if alpha == 1:
        return [("add" if sign > 0 else "sub", (_operand(a), _operand(b)))]
    if not isinstance(alpha, int | float):
        return None
    return [("fma", (_operand(b), float(sign * alpha), _operand(a)))]


def _div(given: Given) -> list[Instruction] | None:
    if given.get("rounding_mode") is not None:
        return None
    other = given["other"]
    return [("div", (_operand(given["self"]), _operand(other)))]


def _clamp(low: str, high: str) -> Builder:
    def build(given: Given) -> list[Instruction] | None:
        bounds = [given.get(low), given.get(high)]
        if any(isinstance(b, Ref) for b in bounds):
            return None
        a = _operand(given["self"])
        numbers = [
            float(b) if isinstance(b, int | float) else limit
            for b, limit in zip(bounds, (float("-inf"), float("inf")), strict=True)
        ]
        return [("clamp", (a, *numbers))]

    return build


def _pow(given: Given) -> list[Instruction] | None:
    exponent = given["exponent"]
    a = _operand(given["self"])
    if exponent == 2:
        return [("square", (a,))]
    if exponent == 0.5:
        return [("sqrt", (a,))]
    if exponent == -0.5:
        return [("rsqrt", (a,))]
    return [("pow", (a, _operand(exponent)))]


def _gelu(given: Given) -> list[Instruction] | None:
    name = "gelu_tanh" if given["approximate"] == "tanh" else "gelu_erf"
    return [(name, (_operand(given["self"]),))]


def _leaky_relu(given: Given) -> list[Instruction] | None:
    return [("leaky_relu", (_operand(given["self"]), _operand(given["negative_slope"])))]


def _elu(given: Given) -> list[Instruction] | None:
    if given["scale"] != 1 or given["input_scale"] != 1:
        return None
    return [("elu", (_operand(given["self"]), _operand(given["alpha"])))]


def _softplus(given: Given) -> list[Instruction] | None:
    if given["beta"] != 1 or given["threshold"] != 20:
        return None
    return [("softplus", (_operand(given["self"]),))]


def _rsub(given: Given) -> list[Instruction] | None:
    if given["alpha"] != 1:
        return None
    return [("sub", (_operand(given["other"]), _operand(given["self"])))]


def _where(given: Given) -> list[Instruction] | None:
    return [("where", tuple(_operand(given[name]) for name in ("condition", "self", "other")))]


def _masked_fill(given: Given) -> list[Instruction] | None:
    return [("where", tuple(_operand(given[name]) for name in ("mask", "value", "self")))]


def _converted(given: Given) -> list[Instruction] | None:
    """A number is true if it is not 0."""
    a = _operand(given["self"])
    if given["dtype"] is DType.BFLOAT16:
        return [("bfloat16", (a,))]
    return [("ne", (a, 0.0))] if given["dtype"] is DType.BOOL else [("copy", (a,))]


_SAME_NAME = (
    "neg", "abs", "sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "expm1", "tanh", "sigmoid",
    "erf", "sin", "cos", "floor", "ceil", "round", "trunc", "relu", "silu", "hardswish",
    "hardsigmoid", "mish", "square",
)  # fmt: skip
_OPERATORS: dict[str, Builder] = {
    **{f"aten.{name}.default": _unary(name) for name in _SAME_NAME},
    "aten.clone.default": _unary("copy"),
    "aten.add.Tensor": lambda given: _sum(given, 1),
    "aten.sub.Tensor": lambda given: _sum(given, -1),
    "aten.add.Scalar": lambda given: _sum(given, 1),
    "aten.sub.Scalar": lambda given: _sum(given, -1),
    "aten.rsub.Scalar": _rsub,
    "aten.mul.Tensor": _binary("mul"),
    "aten.mul.Scalar": _binary("mul"),
    "aten.div.Tensor": _div,
    "aten.div.Scalar": _div,
    "aten.maximum.default": _binary("maximum"),
    "aten.minimum.default": _binary("minimum"),
    "aten.pow.Tensor_Scalar": _pow,
    "aten.hardtanh.default": _clamp("min_val", "max_val"),
    "aten.clamp.default": _clamp("min", "max"),
    "aten.clamp_min.default": _clamp("min", "max"),
    "aten.clamp_max.default": _clamp("min", "max"),
    "aten.gelu.default": _gelu,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.elu.default": _elu,
    "aten.softplus.default": _softplus,
}
_OPERATORS |= (
    _LOGIC_OPERATORS := {
        **{
            f"aten.{name}.{kind}": _binary(name)
            for name in ("eq", "ne", "lt", "le", "gt", "ge")
            for kind in ("Tensor", "Scalar")
        },
        **{f"aten.logical_{name}.default": _binary(f"logical_{name}") for name in ("and", "or")},
        "aten.logical_not.default": _unary("logical_not"),
        # On numbers these are others, but numbers with bits are not float32.
        "aten.bitwise_and.Tensor": _binary("logical_and"),
        "aten.bitwise_or.Tensor": _binary("logical_or"),
        "aten.bitwise_not.default": _unary("logical_not"),
        "aten.masked_fill.Scalar": _masked_fill,
        "aten.masked_fill.Tensor": _masked_fill,
        "aten.where.self": _where,
        "aten._to_copy.default": _converted,
    }
)
POINTWISE = frozenset(_OPERATORS)
LOGIC = frozenset(_LOGIC_OPERATORS)
"""Those that read or write truth values too."""
