"""Tapes: a schedule's streams, waits and kernel calls, replayed by native threads.

Among the kernels are oneDNN's primitives, made ahead of time for one thread.
"""

from collections.abc import Sequence
from typing import Literal

Post = (
    tuple[Literal["eltwise"], str, float, float]
    | tuple[Literal["sum"], float]
    | tuple[Literal["binary"], str, Desc]
)
"""What is done to a result before it is stored, in the order of the list.

("eltwise", kind, alpha, beta) as in `eltwise`. ("sum", scale) adds what the destination held
before, so many times. ("binary", kind, Desc) as in `binary`, with the result so far as `a`; the
tensor `b` is an operand of its own, "post<index in the list>".
"""

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

    def primitive(
        self,
        stream: int,
        task: int,
        primitive: Primitive,
        operands: Sequence[tuple[int, int]],
    ) -> None:
        """Appends a task: a primitive, which the tape keeps.

        An operand is (slot, byte offset), in the order of `primitive.roles`; the address of a slot
        may change between replays. Two tasks that may run at once need scratchpads of their own.
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
    def failed_task(self) -> int | None:
        """The task that failed in the last replay."""

def native_kernels() -> list[str]: ...
def opcodes() -> dict[str, int]:
    """The operations of a pointwise program."""

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

class Desc:
    """A tensor's dims, element type, and where its elements lie. Immutable.

    Strides are in elements; a tensor may leave gaps (a slice of a wider one) but not overlap
    itself. Strides of dims with one element mean nothing and are set as in a dense tensor, which
    oneDNN recognises. Where oneDNN chose the layout, there may be no strides that describe it.
    """

    def __init__(
        self,
        dims: Sequence[int],
        strides: Sequence[int],
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    ) -> None: ...
    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...] | None:
        """None if the layout is oneDNN's own."""

    @property
    def dtype(self) -> str: ...
    @property
    def bytes(self) -> int:
        """From the first element to the end of the last, and of what oneDNN pads with."""

    def grouped(self, groups: int) -> Desc:
        """The first dim split into (groups, rest): weights of a grouped convolution."""

    def permuted(self, order: Sequence[int]) -> Desc:
        """The same memory with its dims in another order, as `torch.Tensor.permute`."""

class Primitive:
    """One of oneDNN's kernels, generated for a problem. Immutable; tapes and threads share it."""

    @property
    def implementation(self) -> str:
        """oneDNN's name for it, such as "jit_1x1:avx2"; "ref..." is slow, never for use."""

    @property
    def scratchpad_bytes(self) -> int:
        """Memory that it needs while it runs. If this is 0, there is no such operand."""

    @property
    def weights(self) -> Desc | None:
        """How it wants its weights; `reorder` packs them. None if it has no such operand."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The operands that it takes, in this order: "dst", "src", "weights", "bias", ..."""

    def desc(self, role: str) -> Desc: ...

class Candidate:
    """A primitive that oneDNN offers. Nothing has been generated for it yet."""

    @property
    def implementation(self) -> str: ...
    @property
    def scratchpad_bytes(self) -> int: ...
    @property
    def weights(self) -> Desc | None: ...
    @property
    def roles(self) -> tuple[str, ...]: ...
    def desc(self, role: str) -> Desc: ...
    def create(self) -> Primitive: ...

# What follows gives every implementation that oneDNN offers for a problem, in its order: none if
# it cannot do it. ValueError if there is no such problem. Biases are dense and of src's dtype.

def convolution(
    src: Desc,
    weights_dims: Sequence[int],
    bias: bool,
    dst: Desc,
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
    groups: int = 1,
    post: Sequence[Post] = (),
    transposed: bool = False,
) -> list[Candidate]:
    """Over 1, 2 or 3 spatial dims, in PyTorch's terms; src and dst have dims (N, C, ...).

    `weights_dims` are PyTorch's: (out, in / groups, ...), transposed (in, out / groups, ...).
    `Candidate.weights` are (out, in, ...), with groups (groups, out / groups, in / groups, ...).
    To pack w: `reorder(w, weights)`, transposed `reorder(w.permuted((1, 0, ...)), weights)` or
    `reorder(w.grouped(groups).permuted((0, 2, 1, ...)), weights)`. Output padding of a transposed
    convolution is taken off `padding_r`, which may be negative.
    """

def matmul(
    src: Desc, weights: Desc | Sequence[int], bias: bool, dst: Desc, post: Sequence[Post] = ()
) -> list[Candidate]:
    """(..., M, K) by (..., K, N); batch dims of 1 are broadcast. The bias has N elements.

    Weights given by dims alone are left to oneDNN, to be packed.
    """

def inner_product(
    src: Desc, weights_dims: Sequence[int], bias: bool, dst: Desc, post: Sequence[Post] = ()
) -> list[Candidate]:
    """(N, in, ...) by (out, in, ...) to (N, out)."""

def pooling(
    kind: str,
    src: Desc,
    dst: Desc,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
    post: Sequence[Post] = (),
) -> list[Candidate]:
    """Kinds "max", "avg_include" (padding counts) or "avg_exclude"."""

def resampling(kind: str, src: Desc, dst: Desc, post: Sequence[Post] = ()) -> list[Candidate]:
    """Kinds "nearest" (PyTorch's "nearest-exact") or "linear" (corners not aligned)."""

def softmax(
    src: Desc, dst: Desc, axis: int, log: bool = False, post: Sequence[Post] = ()
) -> list[Candidate]: ...
def layer_norm(
    src: Desc, dst: Desc, eps: float, affine: bool, post: Sequence[Post] = ()
) -> list[Candidate]:
    """Over the last dim. Affine: operands "scale" and "shift", always float32."""

def eltwise(
    kind: str,
    src: Desc,
    dst: Desc,
    alpha: float = 0.0,
    beta: float = 0.0,
    post: Sequence[Post] = (),
) -> list[Candidate]:
    """relu (slope alpha below 0), clip (from alpha to beta), tanh, logistic, gelu_erf, gelu_tanh,
    swish (x * logistic(alpha x); SiLU has alpha 1), hardswish (alpha 1/6, beta 1/2), hardsigmoid
    (alpha 1/6, beta 1/2), elu (alpha), linear (alpha x + beta), exp, sqrt, abs, square, log,
    round, pow (alpha x ** beta), softplus (log(1 + exp(alpha x)) / alpha) or mish.

    For NaN, relu without slope and clip give a number, and exp gives infinity; for -infinity,
    swish, hardswish and gelu give NaN. PyTorch gives NaN for NaN.
    """

def binary(kind: str, a: Desc, b: Desc, dst: Desc, post: Sequence[Post] = ()) -> list[Candidate]:
    """add, sub, mul, div, max, min, or ge, gt, le, lt, eq, ne, which give 1.0 or 0.0.

    Operands are "dst", "a", "b". Dims of `b` that are 1 are broadcast.
    """

def reduction(kind: str, src: Desc, dst: Desc, post: Sequence[Post] = ()) -> list[Candidate]:
    """sum, mean, max, min or mul, over the dims that are 1 in dst."""

def reorder(src: Desc, dst: Desc) -> list[Candidate]:
    """Copies into another layout or element type, such as the one that `Candidate.weights` has."""

def lstm(src: Desc, dst: Desc, reverse: bool = False) -> list[Candidate]:
    """One layer over a sequence: src (time, batch, in), dst (time, batch, out).

    Operands "dst", "dst_h", "dst_c", "src", "src_h", "src_c", "weights", "weights_h", "bias".
    States are dense (1, 1, batch, out). Weights are (1, 1, in, 4, out), of which PyTorch's have
    strides (.., .., 1, in * out, in); bias (1, 1, 4, out) is the sum of PyTorch's two.
    """

def gru(src: Desc, dst: Desc, reverse: bool = False) -> list[Candidate]:
    """As `lstm`, without "dst_c" and "src_c", and with three gates.

    Gates are in the order z, r, n, while PyTorch's weights have r, z, n. The four biases are those
    of z and r, each the sum of PyTorch's two, and those of n, of the input and of the state.
    """

def onednn_version() -> str: ...
