"""Graph → Graph, for any device: fold batch norm and constants, drop what is not needed."""

from nimble.rewrite.attention import straighten_attention
from nimble.rewrite.batch_norm import fold_batch_norm
from nimble.rewrite.constants import fold_constants
from nimble.rewrite.dead import remove_dead_tasks
from nimble.rewrite.fills import free_fills
from nimble.rewrite.noops import remove_noops
from nimble.rewrite.rows import dependent_rows
from nimble.rewrite.steps import Step, rewrite
from nimble.rewrite.subexpressions import merge_subexpressions
from nimble.rewrite.updates import FUNCTIONAL, update_in_place

__all__ = [
    "FUNCTIONAL",
    "Step",
    "dependent_rows",
    "fold_batch_norm",
    "fold_constants",
    "free_fills",
    "merge_subexpressions",
    "remove_dead_tasks",
    "remove_noops",
    "rewrite",
    "straighten_attention",
    "update_in_place",
]
