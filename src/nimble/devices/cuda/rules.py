"""The documented rules of stream capture: what CUDA says when one is broken, and the way out."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.errors import StreamCaptureError

_RUN_EAGERLY = (
    "call it outside of the model, or let the plan be split there (the default: split=True)"
)
_OWN_STREAMS = (
    "an operator may use the stream it is called on, and others only if they wait for an event of "
    "that stream first and are waited for by it at the end"
)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    said: str
    """In CUDA's or PyTorch's message."""
    broken: str
    """What the task did."""
    todo: str
    splits: bool = False
    """Whether the task may run between two captured parts instead."""


RULES = (
    Rule(
        "cudaErrorStreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
        "it waits for the GPU, asks how far it is, or copies to the host: .item(), nonzero(), "
        "synchronize(), query()",
        _RUN_EAGERLY,
        splits=True,
    ),
    Rule(
        "not during capture",
        "during CUDA graph capture. If you need this call to be captured",
        "it does what PyTorch refuses while a stream is capturing, such as seeding a generator",
        _RUN_EAGERLY,
        splits=True,
    ),
    Rule(
        "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        "an error before it, which somebody caught, has ended the capture",
        "let errors of CUDA through: after the first one nothing more can be captured",
    ),
    Rule(
        "cudaErrorStreamCaptureMerge",
        "operation would result in a merge of separate capture sequences",
        "it waits for an event of another capture",
        "an operator may wait for events of its own capture only: do not keep events between calls",
    ),
    Rule(
        "cudaErrorStreamCaptureUnmatched",
        "capture was not initiated in this stream",
        "it ended a capture on a stream on which none began",
        "an operator must not end captures: leave torch.cuda.graph to the caller",
    ),
    Rule(
        "cudaErrorStreamCaptureUnjoined",
        "capturing stream has unjoined work",
        "it launched work on another stream that nobody waits for",
        _OWN_STREAMS,
    ),
    Rule(
        "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
        "it waits for an event that was recorded outside of the capture",
        _OWN_STREAMS,
    ),
    Rule(
        "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
        "it launched work on the default stream",
        "an operator must launch on the current stream (torch.cuda.current_stream()), not on the "
        "default one",
    ),
    Rule(
        "cudaErrorCapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream",
        "it asks about, or waits on the host for, an event of the capture",
        _RUN_EAGERLY,
        splits=True,
    ),
    Rule(
        "cudaErrorStreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread",
        "another thread tried to end the capture",
        "an operator must not end captures: leave torch.cuda.graph to the caller",
    ),
    Rule(
        "cudaErrorIllegalState",
        "the operation cannot be performed in the present state",
        "it began a capture on a stream that is capturing",
        "an operator must not capture graphs of its own: capture it before, or not at all",
        splits=True,
    ),
    Rule(
        "capture on the default stream",
        "CUDA graphs must be captured on a non-default stream",
        "it began a capture on the default stream",
        "capture on a stream of your own: with torch.cuda.stream(torch.cuda.Stream())",
    ),
    Rule(
        "graph captured twice",
        "already owns a captured graph",
        "it began a capture into a graph that has one",
        "make a new torch.cuda.CUDAGraph for every capture",
    ),
    Rule(
        "replay of no graph",
        "replay without a preceding successful capture",
        "it launched a graph that was never captured, or was reset",
        "capture the graph first, and keep it as long as it is used",
    ),
    Rule(
        "unregistered generator",
        "Attempt to increase offset for a CUDA generator not in capture mode",
        "it draws from a generator that the graph does not know",
        "draw from the default generator, which is registered (leave out generator=)",
    ),
    Rule(
        "temporary freed early",
        "a block of the graph's pool was freed while another stream used it",
        "it let go of a temporary tensor that another stream of its own still reads",
        "keep what another stream reads until it was waited for, or tensor.record_stream(stream)",
    ),
)


def broken_rule(error: BaseException) -> Rule | None:
    """The rule that an error of CUDA's speaks of, or one that it was raised from."""
    at: BaseException | None = error
    while at is not None:
        for rule in RULES:
            if rule.said in str(at):
                return rule
        at = at.__cause__ or at.__context__
    return None


def refusal(task: str, op: str, origin: str, rule: Rule) -> StreamCaptureError:
    """The error that names the task, and the way out."""
    where = f" from {origin}" if origin else ""
    return StreamCaptureError(
        f"task {task!r} ({op}){where} cannot be captured: {rule.broken} ({rule.name}). {rule.todo}",
        task,
        rule.name,
    )
