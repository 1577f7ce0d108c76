"""ATen ops on the tensors of a plan, replayed in C++ without Python or the GIL.

torch must be imported before this module, and be the release it was built against.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch

BUILT_AGAINST: str
"""`torch.__version__` at build time."""

class Mismatch(ValueError):  # noqa: N818
    """A tensor given to `Table.replay` does not fit the plan. Nothing has run."""

    args: tuple[int, str]
    """Which tensor, and why: "has dtype float64, expected float32"."""

class Changed(Exception):  # noqa: N818
    """Something that is watched is no longer as it was. Nothing that anybody could notice has
    happened, save that the outputs of a `Bound` may have been written."""

class Ref:
    """An argument that is a value of the table."""

    def __init__(self, id: int) -> None: ...
    @property
    def id(self) -> int: ...

class Call:
    """One task, ready for `nimble._core.Tape.call`. Keeps its table alive, not its tape."""

    @property
    def fn(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def kind(self) -> Literal["out", "copy", "inplace"]:
        """How results are written: in place, by a copy of what the op allocates, or there are none
        because the op writes its arguments."""
    @property
    def op(self) -> str:
        """The op that is called in the end, such as `aten::add.out`."""

InputSpec: TypeAlias = tuple[int, torch.dtype, Sequence[int], Sequence[int]]
"""(slot, dtype, shape, strides)"""

OutputSpec: TypeAlias = (
    tuple[Literal["fresh"], int, torch.dtype, Sequence[int], Sequence[int], int]
    | tuple[Literal["input"], int]
    | tuple[Literal["input_view"], int, Sequence[int], Sequence[int], int]
    | tuple[Literal["memory"], int]
    | tuple[Literal["memory_view"], int, Sequence[int], Sequence[int], int]
)
"""One of

- ("fresh", slot, dtype, shape, strides, offset_bytes): of memory allocated at every call. All such
  outputs of one slot share it, as views of one another would.
- ("input", index): the very tensor that was passed.
- ("input_view", index, shape, strides, offset_bytes): a view of it.
- ("memory", slot): the very tensor that was given to `Table.memory`.
- ("memory_view", slot, shape, strides, offset_bytes): a view of it.
"""

class Table:
    """The tensors of one plan, and the calls that replay on them.

    A slot is a memory; a value is a tensor on it. Wrong arguments raise ValueError.
    """

    def __init__(self, slots: int, values: int) -> None: ...
    def storage(self, slot: int, nbytes: int) -> None:
        """A memory whose address is bound at every call: an input or a fresh output."""
    def memory(self, slot: int, tensor: torch.Tensor) -> None:
        """A memory that lives as long as the plan: arena, parameter, constant or state.

        It begins at the tensor's first element. To call it again replaces the tensor by one of as
        many bytes.
        """
    def value(
        self,
        id: int,
        slot: int,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        offset_bytes: int,
    ) -> None: ...
    def call(
        self,
        op: str,
        overload: str,
        args: list[Any],
        kwargs: dict[str, Any],
        results: Sequence[int | None],
        unused: Sequence[int] = (),
    ) -> Call:
        """An op such as "aten::add", "Tensor" on values of the table.

        `results` are the values its tensors go to, lists flattened, None where it returns none;
        empty for an op that writes its arguments. Those in `unused` need not be written.
        """
    def run(self, calls: Sequence[Call]) -> None:
        """Run calls in this order on this thread, where every slot is a memory and there is no
        plan."""
    def plan(
        self,
        tape: int,
        api: object,
        inputs: Sequence[InputSpec],
        specs: Sequence[OutputSpec],
        outputs: Sequence[int],
        mutated: Sequence[int],
        repeatable: bool = False,
    ) -> None:
        """Make the table replay a tape: `Tape.address`, `nimble._core.replay_api`. The tape and the
        calls on it must outlive the table's last replay.

        `outputs` are places in `specs`, and a place that occurs twice gives one object twice.
        `mutated` are the slots of inputs and memories that are written. `repeatable` says that a
        replay leaves nothing behind, so that one too many does no harm.
        """
    def replay(
        self, tensors: Sequence[torch.Tensor], watch: Watch | None = None
    ) -> list[torch.Tensor]:
        """Run the tape on these inputs, bound without a copy. Raises Mismatch where they do not fit
        or where one that is written shares memory with another, and Changed where the watch has
        noticed something. If the plan is repeatable, the watch looks on while the tape runs."""
    def bind(self, tensors: Sequence[torch.Tensor]) -> Bound:
        """The plan on these inputs, with results that are allocated once. Runs nothing yet. The
        tape and the calls on it must outlive its last run."""

class Bound:
    """Inputs and results that stay; keeps its table alive."""

    @property
    def outputs(self) -> list[torch.Tensor]: ...
    def run(self, watch: Watch | None = None) -> None:
        """Run the tape on what the inputs hold now, and write the outputs again. Raises what
        `Table.replay` does."""

class Gate:
    """Lets the calls through that need no second look."""

    MOST: int
    """As many tensors as a call may have."""
    def __init__(
        self, count: int, autocast: torch.dtype | None, default_dtype: torch.dtype
    ) -> None: ...
    def passes(self, args: tuple[object, ...]) -> bool:
        """Whether these are so many different tensors, of torch.Tensor itself, no gradient is asked
        for, no mode or transform is on, and autocast and the default dtype are the gate's."""

class Seen:
    """What a watch saw."""

class Watch:
    """Notices that tensors were written, moved or replaced."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        places: Sequence[tuple[dict[str, Any], str, object]],
        used: Sequence[torch.Tensor] = (),
        contents: bool = False,
    ) -> None:
        """`places` are (dict, key, the object expected there). What is written into the tensors in
        `used` does not count, only whether they still lie where they did. With `contents`, those of
        `tensors` are read every time: PyTorch counts no writes through `.data` or NumPy."""
    def changed(self) -> bool:
        """Whether a tensor's version, address, shape or strides are not as at the last reset, or
        another object is in one of the places."""
    def look(self) -> Seen:
        """The tensors as they are now."""
    def reset(self, seen: Seen) -> None:
        """From now on compare with what this watch has seen then: what is made of the tensors takes
        time, and what happens to them meanwhile is a change."""

def install_hooks(api: object) -> None:
    """Make the workers of `nimble._core` run kernels on one thread each, below autograd and modes.
    `Table.plan` does so, too."""
