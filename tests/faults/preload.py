"""What the warm process of the fault suite has imported before the first case: see ``faults.warm``."""

import gc
import importlib
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # a thread pool does not survive a fork
os.environ.setdefault("MPLBACKEND", "agg")

import lightning  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import narwhals.stable.v2
import pandas
import PIL.Image  # noqa: F401
import pyarrow
import sklearn.linear_model  # noqa: F401
import torch

import vicinal.cli
import vicinal.estimators
import vicinal.evaluation.tuned
import vicinal.report.theme
import vicinal.training.fit
import vicinal.workflows.compare
import vicinal.workflows.evaluate
from brief import FEWER, READOUTS, TREES

torch.set_num_threads(1)
pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)
narwhals.stable.v2.from_native(pandas.DataFrame({"size": [1.0]})).get_column("size")
for _page in vicinal.report.theme.environment().list_templates(["html"]):
    vicinal.report.theme.environment().get_template(_page)

if "VICINAL_TEST_BRIEF" in os.environ and "pytest" not in sys.modules:  # see tests/conftest.py
    vicinal.report.theme.to_svg = lambda figure, prefix: "<svg></svg>"
    for name, value in (FEWER | READOUTS | TREES).items():
        setattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2], value)

if "pytest" not in sys.modules:
    gc.collect()
    gc.freeze()  # no case looks through what it shares with the others
