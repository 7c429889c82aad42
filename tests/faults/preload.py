"""What the warm process of the fault suite has imported before the first case: see ``faults.warm``."""

import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # a thread pool does not survive a fork
os.environ.setdefault("MPLBACKEND", "agg")

import lightning  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import PIL.Image  # noqa: F401
import pyarrow
import sklearn.linear_model  # noqa: F401
import torch

import vicinal.cli
import vicinal.estimators
import vicinal.report.theme
import vicinal.workflows.compare
import vicinal.workflows.evaluate

torch.set_num_threads(1)
pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)

if "VICINAL_TEST_BRIEF_PICTURES" in os.environ and "pytest" not in sys.modules:  # see tests/conftest.py
    vicinal.report.theme.to_svg = lambda figure, prefix: "<svg></svg>"
