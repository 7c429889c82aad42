"""What all other packages share: types, checks, the safe log of a mask, the registry."""

from vicinal.core.arrays import as_tensor
from vicinal.core.checks import (
    CalibrationWarning,
    CellWarning,
    ColumnError,
    ColumnWarning,
    ExtrapolationWarning,
    check_choice,
    counted,
    listed,
    nearest,
    short,
)
from vicinal.core.files import replaced_file
from vicinal.core.reduce import Reduction, log_mask
from vicinal.core.registry import FACTS, KINDS, entries, entry, make, register

__all__ = [
    "FACTS",
    "KINDS",
    "CalibrationWarning",
    "CellWarning",
    "ColumnError",
    "ColumnWarning",
    "ExtrapolationWarning",
    "Reduction",
    "as_tensor",
    "check_choice",
    "counted",
    "entries",
    "entry",
    "listed",
    "log_mask",
    "make",
    "nearest",
    "register",
    "replaced_file",
    "short",
]
