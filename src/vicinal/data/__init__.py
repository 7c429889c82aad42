"""Tables: reading files, the roles of columns, splits, rows of identical content, the data of the demo."""

from vicinal.data.cars import cars_table
from vicinal.data.duplicates import duplicates_across, find_duplicates
from vicinal.data.form import TableForm
from vicinal.data.imputation import impute_by_matching
from vicinal.data.leaks import LeakWarning, leaking_columns
from vicinal.data.nearest_metric import nearest_metric
from vicinal.data.reading import read_cells, read_table
from vicinal.data.sets import CHUNK_WORDS, long_texts, split_texts
from vicinal.data.shuffled_labels import match_labels
from vicinal.data.sources import beside
from vicinal.data.splits import Split, make_splits
from vicinal.data.table import Table, prepare_table
from vicinal.data.target import Target, Task
from vicinal.data.writing import write_table

__all__ = [
    "CHUNK_WORDS",
    "LeakWarning",
    "Split",
    "Table",
    "TableForm",
    "Target",
    "Task",
    "beside",
    "cars_table",
    "duplicates_across",
    "find_duplicates",
    "impute_by_matching",
    "leaking_columns",
    "long_texts",
    "make_splits",
    "match_labels",
    "nearest_metric",
    "prepare_table",
    "read_cells",
    "read_table",
    "split_texts",
    "write_table",
]
