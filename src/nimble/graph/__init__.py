"""The IR: Graph, Task and Value, the rules they obey, and how they are printed."""

from nimble.graph.costs import Costs, RecordedCosts
from nimble.graph.dependencies import dependencies
from nimble.graph.ir import (
    Arg,
    DType,
    Graph,
    Ref,
    Role,
    Symbol,
    Task,
    Value,
    contiguous_strides,
    map_refs,
    refs,
)
from nimble.graph.show import show
from nimble.graph.verify import verify

__all__ = [
    "Arg",
    "Costs",
    "DType",
    "Graph",
    "RecordedCosts",
    "Ref",
    "Role",
    "Symbol",
    "Task",
    "Value",
    "contiguous_strides",
    "dependencies",
    "map_refs",
    "refs",
    "show",
    "verify",
]
