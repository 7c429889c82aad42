"""Tables: reading files, the roles of columns, splits, rows of identical content, the data of the demo."""

from vicinal.data.cars import cars_table as cars_table
from vicinal.data.duplicates import duplicates_across as duplicates_across
from vicinal.data.duplicates import find_duplicates as find_duplicates
from vicinal.data.form import TableForm as TableForm
from vicinal.data.imputation import impute_by_matching as impute_by_matching
from vicinal.data.leaks import LeakWarning as LeakWarning
from vicinal.data.leaks import leaking_columns as leaking_columns
from vicinal.data.nearest_metric import nearest_metric as nearest_metric
from vicinal.data.reading import read_cells as read_cells
from vicinal.data.reading import read_table as read_table
from vicinal.data.sets import CHUNK_WORDS as CHUNK_WORDS
from vicinal.data.sets import long_texts as long_texts
from vicinal.data.sets import split_texts as split_texts
from vicinal.data.shuffled_labels import match_labels as match_labels
from vicinal.data.sources import beside as beside
from vicinal.data.splits import Split as Split
from vicinal.data.splits import make_splits as make_splits
from vicinal.data.table import Table as Table
from vicinal.data.table import prepare_table as prepare_table
from vicinal.data.target import Target as Target
from vicinal.data.target import Task as Task
from vicinal.data.writing import write_table as write_table
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
