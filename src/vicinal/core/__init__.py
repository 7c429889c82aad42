"""What every layer above shares: types, checks, row reduction, the safe log of a mask, the registry."""

from vicinal.core.checks import (
    check_between,
    check_choice,
    check_integer,
    check_labels,
    check_matrices,
    check_number,
    check_scores,
    nearest,
)
from vicinal.core.files import replace_text, replaced_file
from vicinal.core.gathering import gather_rows, process_count, process_rank, sum_over_processes
from vicinal.core.reduce import Reduction, log_mask, reduce_rows
from vicinal.core.registry import FACTS, KINDS, Entry, entries, entry, make, register

__all__ = [
    "FACTS",
    "KINDS",
    "Entry",
    "Reduction",
    "check_between",
    "check_choice",
    "check_integer",
    "check_labels",
    "check_matrices",
    "check_number",
    "check_scores",
    "entries",
    "entry",
    "gather_rows",
    "log_mask",
    "make",
    "nearest",
    "process_count",
    "process_rank",
    "reduce_rows",
    "register",
    "replace_text",
    "replaced_file",
    "sum_over_processes",
]
