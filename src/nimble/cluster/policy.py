"""What a policy is: `decide(view, memory, now)` gives actions, memory and when to be asked again.

A policy is one class in one file:

    class Mine:
        name = "mine"

        def rank(self, state, view):            # which waiting job is offered GPUs first
            return state.job.submit_s

        def decide(self, view, memory, now):
            draft = view.draft()
            for bucket in draft.buckets():      # waiting jobs that want the same
                ...
            return draft.actions(), memory, math.inf

The simulator asks at every time at which something happened: jobs arrived, ended, lost a machine, a
machine came back, or the `wake_at` of an earlier answer has come. It is the policy's last answer
that counts: a `wake_at` replaces the one before. Then it carries out the actions: first all that
stop, move or resize let their GPUs go, then GPUs are taken in the order of the actions. The same
object serves a live cluster, where time is real.

Policies are pure: what they learn from one call to the next is in `memory`, a dict that `json` can
write and read back (string keys; no infinities), which they may update in place; the view shows
everything else. So a policy object may be used for many runs and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from nimble.cluster.topology import Placement

if TYPE_CHECKING:
    from nimble.cluster.state import JobState
    from nimble.cluster.view import View

Memory = dict[str, Any]
# Orders waiting jobs; smaller first. Floats, or tuples of the same shape for every job.
Rank = float | tuple[float, ...]


class Kind(StrEnum):
    """What an action does with its job."""

    START = "start"  # a waiting job begins, or goes on, on `placement`
    STOP = "stop"  # a running job gives up all its GPUs and waits: preemption
    MOVE = "move"  # a running job goes on elsewhere with as many GPUs
    RESIZE = "resize"  # a running elastic job goes on with more or fewer GPUs on `placement`


class Reason(NamedTuple):
    """Why: a code of REASONS (or of the policy's own `reasons`) and the numbers it speaks of.

    At most three numbers; they are recorded with every action.
    """

    code: str
    numbers: tuple[float, ...] = ()


class Action(NamedTuple):
    kind: Kind
    job: int
    placement: Placement  # () for STOP
    reason: Reason


Decision = tuple[Sequence[Action], Memory, float]

# Words for reasons, filled with the numbers. Policies add theirs under `reasons`.
REASONS: dict[str, str] = {
    "": "",
    "submitted": "submitted",
    "finished": "finished",
    "machine_failed": "machine {0:.0f} failed; went back to the last checkpoint",
    "machine_drained": "machine {0:.0f} is being drained",
    "tightest_free": "took the tightest free GPUs after {0:.0f} s",
    "backfilled": "took GPUs that are too few for a larger job ahead of it, after {0:.0f} s",
    "fits_machine": "fits inside a machine, after {0:.0f} s",
    "fits_rack": "wants more GPUs than a machine has: took a rack after {0:.0f} s",
    "fits_network": "wants more GPUs than a rack has: took the network after {0:.0f} s",
    "rack_timer": "waited {1:.1f} leases for a machine (timer {2:.0f}), then took a rack",
    "network_timer": "waited {1:.1f} leases for a rack (timer {2:.0f}), then took the network",
    "lease_better": "its lease ended and closer GPUs were free",
    "lease_ended": "its lease ended and a job that was slowed more took its GPUs",
    "outranked": "gave way to job {0:.0f}",
    "too_few_free": "wants {0:.0f} GPUs; {1:.0f} are free",
    "waits_machine": "waits for {0:.0f} GPUs in one machine; takes a rack in {1:.0f} s",
    "waits_rack": "waits for {0:.0f} GPUs in one rack; takes the network in {1:.0f} s",
    "waits_gpus": "waits for {0:.0f} GPUs anywhere; {1:.0f} are free",
}


@runtime_checkable
class Policy(Protocol):
    """One scheduling policy. See the module's text."""

    @property
    def name(self) -> str: ...

    def rank(self, state: JobState, view: View) -> Rank:
        """Where a job stands among the waiting, asked once when it begins to wait.

        Jobs of higher `priority` stand first whatever this says; equal ranks go by id. What changes
        while a job waits cannot be a rank: order by it inside `decide`.
        """
        ...

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        """What to do now, what to remember, and when to be asked at the latest (inf: never)."""
        ...


# Optional attributes of a policy, read with `getattr`:
#   lease_s: float           view.expired and view.next_expiry work with leases of this length
#   reasons: dict[str, str]  words for its own reason codes
#   def kind(self, job) -> str       keeps waiting jobs that it treats differently in buckets apart
#   def hold(self, state, view) -> float   where a job stands in view.holders; asked when it begins
#                                          to run, largest gives way first
#   def start(self) -> Memory                        the first memory; {} without it
#   def why_waiting(self, state, view, memory, now) -> Reason    explains a wait, on demand


def words(code: str, numbers: Sequence[float], own: Mapping[str, str] | None = None) -> str:
    """A reason in words.

    >>> words("rack_timer", (3700.0, 6.2, 6.0))
    'waited 6.2 leases for a machine (timer 6), then took a rack'
    """
    template = (own or {}).get(code) or REASONS.get(code)
    if template is None:
        return f"{code} {tuple(numbers)}" if numbers else code
    return template.format(*numbers)
