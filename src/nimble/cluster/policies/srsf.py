"""SRSF: whoever needs the fewest GPU-seconds goes first."""

from __future__ import annotations

from nimble.cluster.policies.srtf import Srtf
from nimble.cluster.state import JobState
from nimble.cluster.view import View


class Srsf(Srtf):
    """Knows how long jobs will take, which nobody does."""

    name = "srsf"

    def need(self, state: JobState, view: View) -> float:
        return view.left_s(state) * state.demand
