"""The exceptions Nimble raises. All derive from NimbleError."""

from __future__ import annotations


class NimbleError(Exception):
    """Base of every error raised by Nimble."""


class CaptureError(NimbleError):
    """The model cannot be captured ahead of time."""


class UnsupportedOpError(CaptureError):
    """The model uses an operator that cannot be replayed."""


class GraphError(NimbleError):
    """A graph breaks the rules of the IR (docs/ir.md)."""


class ScheduleError(NimbleError):
    """A schedule cannot be built."""


class MemoryLimitError(ScheduleError):
    """No schedule was found within `memory_limit`.

    `smallest` is the smallest arena found, `lower_bound` what no order of the tasks can go below.
    """

    def __init__(self, message: str, smallest: int, lower_bound: int) -> None:
        super().__init__(message)
        self.smallest = smallest
        self.lower_bound = lower_bound

    def even_twice(self, enough: int) -> MemoryLimitError:
        """The same, where running tasks again did not help either: that takes `enough` bytes."""
        more = (
            ". These are with every task run once; with some of them run twice the smallest found "
            f"takes {enough}"
        )
        smallest = min(self.smallest, enough)
        return MemoryLimitError(f"{self}{more}", smallest, min(self.lower_bound, smallest))


class ProofError(NimbleError):
    """A schedule has a race, or reads memory that holds something else."""


class UnfitError(NimbleError):
    """A tensor is not of the type that a plan was made for."""


class InputError(NimbleError, ValueError):
    """Arguments that Nimble, or an engine, cannot take."""


class ArtifactError(NimbleError):
    """A saved engine cannot be loaded."""


class TraceError(NimbleError):
    """A trace, profile or topology file cannot be read."""


class SimulationError(NimbleError):
    """A simulation cannot go on. `result` holds what had happened up to there."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class PolicyError(SimulationError):
    """A policy raised, asked for what cannot be done, or left jobs waiting for ever."""


class RulesError(SimulationError):
    """Reservations, drains or outages leave jobs waiting for ever, whatever the policy does."""


class InvariantError(NimbleError):
    """The simulator broke one of its own rules (Options.invariants)."""


class DeviceError(NimbleError):
    """A device is not there, or cannot do what a plan asks of it."""


class StreamCaptureError(DeviceError):
    """A task broke a rule of CUDA's stream capture.

    `task` is its name, `rule` CUDA's name for the error.
    """

    def __init__(self, message: str, task: str, rule: str) -> None:
        super().__init__(message)
        self.task = task
        self.rule = rule


class RecompileWarning(UserWarning):
    """An engine compiles again and again, which costs more than replays save."""
