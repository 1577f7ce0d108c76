"""Many jobs on many GPUs: topologies, traces, policies, and a simulator that is fast enough."""

from __future__ import annotations

from nimble.cluster.job import Job
from nimble.cluster.network import Collective, cost
from nimble.cluster.policy import Action, Kind, Policy, Reason
from nimble.cluster.profile import Profile
from nimble.cluster.record import Record
from nimble.cluster.result import Options, Outage, Result
from nimble.cluster.rules import Drain, Reservation, Rules
from nimble.cluster.simulator import simulate
from nimble.cluster.topology import Topology, grid, parse

__all__ = [
    "Action",
    "Collective",
    "Drain",
    "Job",
    "Kind",
    "Options",
    "Outage",
    "Policy",
    "Profile",
    "Reason",
    "Record",
    "Reservation",
    "Result",
    "Rules",
    "Topology",
    "cost",
    "grid",
    "parse",
    "simulate",
]
