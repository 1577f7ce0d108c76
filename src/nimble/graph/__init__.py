"""The IR: Graph, Task and Value, the rules they obey, and how they are printed."""

from nimble.graph.codec import decode, encode
from nimble.graph.costs import Costs, RecordedCosts
from nimble.graph.dependencies import dependencies, in_order
from nimble.graph.edit import Edit, call, compact, even_step, fresh, is_dense
from nimble.graph.ir import (
    ALIGNMENT,
    Arg,
    DType,
    Graph,
    Ref,
    Role,
    Symbol,
    Task,
    Value,
    align,
    contiguous_strides,
    map_refs,
    refs,
)
from nimble.graph.show import show
from nimble.graph.verify import verify, verify_memory

__all__ = [
    "ALIGNMENT",
    "Arg",
    "Costs",
    "DType",
    "Edit",
    "Graph",
    "RecordedCosts",
    "Ref",
    "Role",
    "Symbol",
    "Task",
    "Value",
    "align",
    "call",
    "compact",
    "contiguous_strides",
    "decode",
    "dependencies",
    "encode",
    "even_step",
    "fresh",
    "in_order",
    "is_dense",
    "map_refs",
    "refs",
    "show",
    "verify",
    "verify_memory",
]
