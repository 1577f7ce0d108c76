"""What a model would take on a GPU: eager, on one stream and on several, before anyone has one."""

from nimble.foresee.foresight import Foreseen, foresee
from nimble.foresee.page import page
from nimble.foresee.subject import Subject, capture_call, capture_step

__all__ = ["Foreseen", "Subject", "capture_call", "capture_step", "foresee", "page"]
