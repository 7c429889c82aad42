"""Tables: reading files, telling columns apart, splits, rows of identical content, the data of the demo."""

from vicinal.data.cells import tidy_features
from vicinal.data.duplicates import (
    Duplicates,
    Leak,
    duplicates_across,
    find_duplicates,
    group_copies,
    table_fingerprint,
)
from vicinal.data.lexicon import lexicon_table
from vicinal.data.reading import read_table
from vicinal.data.splits import Split, load_splits, make_splits, save_splits
from vicinal.data.table import Dropped, Table, check_column, prepare_table
from vicinal.data.target import Target, Task, infer_task, read_target

__all__ = [
    "Dropped",
    "Duplicates",
    "Leak",
    "Split",
    "Table",
    "Target",
    "Task",
    "check_column",
    "duplicates_across",
    "find_duplicates",
    "group_copies",
    "infer_task",
    "lexicon_table",
    "load_splits",
    "make_splits",
    "prepare_table",
    "read_table",
    "read_target",
    "save_splits",
    "table_fingerprint",
    "tidy_features",
]
