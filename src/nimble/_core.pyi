"""Tapes: a schedule's streams, waits and kernel calls, replayed by native threads."""

from collections.abc import Sequence

class Tape:
    """Streams of tasks in the order they run. Written once, finished, then replayed at will.

    Addresses given to it must stay valid as long as it is replayed. Any thread may replay it; one
    replay goes on at a time.
    """

    def __init__(self, streams: int, tasks: int, slots: int) -> None: ...
    def call(self, stream: int, task: int, fn: int, context: int) -> None:
        """Appends a task: the kernel at address `fn`, called with `context`."""

    def native(
        self,
        stream: int,
        task: int,
        kernel: str,
        operands: Sequence[tuple[int, int]],
        ints: Sequence[int],
        floats: Sequence[float],
    ) -> None:
        """Appends a task: one of `native_kernels()`.

        An operand is (slot, byte offset), output first; the address of a slot may change between
        replays. native/kernels/README.md says what each kernel takes. ValueError if the ints or
        floats are malformed.
        """

    def wait(self, stream: int, on: int) -> None:
        """Makes the next task of `stream` wait until task `on` is done."""

    def finish(self) -> None:
        """Lays the tape out. Raises ValueError if a wait could never be satisfied."""

    @property
    def address(self) -> int:
        """What `replay_api` takes for this tape."""

    def set_slot(self, slot: int, address: int) -> None: ...
    def replay(self) -> None:
        """Runs every task once, without the GIL. Raises what the first failing kernel threw."""

    def record(self) -> list[tuple[int, int, int, int]]:
        """Like `replay`, with times: (task, thread, start_ns, stop_ns), by start.

        The clock is that of `time.monotonic_ns`; thread 0 is the caller's.
        """

    recording: bool
    """Whether replays through `replay_api` keep their times."""

    @property
    def recorded(self) -> list[tuple[int, int, int, int]]:
        """The times of the last such replay, as `record` gives them."""

    @property
    def lasted_ns(self) -> int:
        """That replay, from its beginning to its end."""

    @property
    def failed_task(self) -> int | None:
        """The task that failed in the last replay."""

def native_kernels() -> list[str]: ...
def instruction_set() -> str:
    """The one that kernels use: what `NIMBLE_ISA` names, or the best of this machine."""

def instruction_sets() -> list[str]:
    """Those that this machine has, the best last."""

def multiplies_bfloat16() -> bool:
    """Whether the instruction set has a multiplication for that."""

def opcodes() -> dict[str, int]:
    """The operations of a pointwise program."""

def is_known_program(inputs: int, outputs: int, ints: list[int], floats: list[float]) -> bool:
    """Whether a pointwise program is compiled ahead of time, and not interpreted."""

def attention_scratch(keys: int, dim: int, value_dim: int) -> int:
    """The bytes that `attention.float32` needs to work in, however many heads."""

def set_workers(n: int) -> None:
    """How many threads a replay may use, its caller included; at first `usable_cores()`."""

def usable_cores() -> int:
    """The cores of the process's affinity mask, no more than its CPU quota pays for in full."""

def pool_size() -> int:
    """Helper threads alive now. Replays start them when they are needed, and they stay."""

replay_api: object
"""A capsule with the C++ struct `ReplayApi` of native/core/replay_api.h."""
