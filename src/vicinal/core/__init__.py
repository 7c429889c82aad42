"""What all other packages share: types, checks, row reduction, the safe log of a mask, the registry."""

from vicinal.core.checks import (
    ECHO,
    ColumnError,
    check_between,
    check_choice,
    check_integer,
    check_labels,
    check_matrices,
    check_number,
    check_scores,
    counted,
    listed,
    local_path,
    nearest,
    optional_import,
    short,
    short_text,
    warn_caller,
)
from vicinal.core.files import replace_text, replaced_file
from vicinal.core.formulas import escape_formula, unescape_formula
from vicinal.core.gathering import gather_rows, process_count, process_rank, sum_over_processes
from vicinal.core.reduce import Reduction, log_mask, reduce_rows
from vicinal.core.registry import FACTS, KINDS, Entry, entries, entry, make, register

__all__ = [
    "ECHO",
    "FACTS",
    "KINDS",
    "ColumnError",
    "Entry",
    "Reduction",
    "check_between",
    "check_choice",
    "check_integer",
    "check_labels",
    "check_matrices",
    "check_number",
    "check_scores",
    "counted",
    "entries",
    "entry",
    "escape_formula",
    "gather_rows",
    "listed",
    "local_path",
    "log_mask",
    "make",
    "nearest",
    "optional_import",
    "process_count",
    "process_rank",
    "reduce_rows",
    "register",
    "replace_text",
    "replaced_file",
    "short",
    "short_text",
    "sum_over_processes",
    "unescape_formula",
    "warn_caller",
]
