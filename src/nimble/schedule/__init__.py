"""Graph → Schedule: streams, order, waits, memory, and the proof that no two tasks race."""

from nimble.schedule.build import schedule, schedule_on
from nimble.schedule.plan import Decision, Schedule, Wait
from nimble.schedule.proof import prove

__all__ = ["Decision", "Schedule", "Wait", "prove", "schedule", "schedule_on"]
