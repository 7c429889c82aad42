"""Tables: reading files, the roles of columns, splits, rows of identical content, the data of the demo."""

from vicinal.data.column_views import hidden_columns, mutual_information
from vicinal.data.databases import query_tables
from vicinal.data.duplicates import (
    Duplicates,
    Leak,
    duplicates_across,
    find_duplicates,
    group_copies,
    table_fingerprint,
)
from vicinal.data.form import TableForm
from vicinal.data.imputation import impute_by_matching
from vicinal.data.leaks import ColumnLeak, LeakWarning, leaking_columns
from vicinal.data.lexicon import lexicon_table
from vicinal.data.nearest_metric import nearest_metric
from vicinal.data.reading import read_cells, read_table
from vicinal.data.sets import CHUNK_WORDS, join_columns, long_texts, split_texts
from vicinal.data.shuffled_labels import MatchedLabels, match_labels
from vicinal.data.sources import beside, root_of, table_name, table_source, table_sources
from vicinal.data.splits import Split, load_splits, make_splits, no_test, save_splits, split_by_time
from vicinal.data.streaming import row_count, stream_table, table_checksum
from vicinal.data.table import Dropped, Table, check_column, prepare_table, table_kinds
from vicinal.data.target import Target, Task, infer_task, read_labels, read_target
from vicinal.data.writing import check_table_name, write_frames, write_table

__all__ = [
    "CHUNK_WORDS",
    "ColumnLeak",
    "Dropped",
    "Duplicates",
    "Leak",
    "LeakWarning",
    "MatchedLabels",
    "Split",
    "Table",
    "TableForm",
    "Target",
    "Task",
    "beside",
    "check_column",
    "check_table_name",
    "duplicates_across",
    "find_duplicates",
    "group_copies",
    "hidden_columns",
    "impute_by_matching",
    "infer_task",
    "join_columns",
    "leaking_columns",
    "lexicon_table",
    "load_splits",
    "long_texts",
    "make_splits",
    "match_labels",
    "mutual_information",
    "nearest_metric",
    "no_test",
    "prepare_table",
    "query_tables",
    "read_cells",
    "read_labels",
    "read_table",
    "read_target",
    "root_of",
    "row_count",
    "save_splits",
    "split_by_time",
    "split_texts",
    "stream_table",
    "table_checksum",
    "table_fingerprint",
    "table_kinds",
    "table_name",
    "table_source",
    "table_sources",
    "write_frames",
    "write_table",
]
