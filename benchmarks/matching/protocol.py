"""What the three studies share: arguments, split seeds, tables of mean and deviation, paired tests, CSV files."""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vicinal.evaluation.statistics import paired_t

RESULTS = Path(__file__).resolve().parents[1] / "results"


def arguments(text):
    """A parser with the options of every study; one thread, so that times and sums are the same everywhere."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with retrieval/, houses/ and text/")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the CSV files")
    torch.set_num_threads(1)
    return parser


def spread(values):
    """Mean and standard deviation over seeds, as text."""
    values = np.asarray(values, dtype=float)
    deviation = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ± {deviation:.3f}"


def summary(records, metrics):
    """One row a method, in the order of the methods: mean ± deviation over seeds of each metric."""
    rows = []
    for name in records["method"].unique():
        found = records[records["method"] == name]
        rows.append({"method": name, **{metric: spread(found[metric]) for metric in metrics}})
    return pd.DataFrame(rows)


def markdown(frame):
    """The frame as a Markdown table."""
    lines = ["| " + " | ".join(frame.columns) + " |", "|" + " --- |" * len(frame.columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)


def holm(p_values):
    """Holm's adjustment for having looked several times."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    result = np.empty_like(p_values)
    result[order] = np.minimum(adjusted, 1.0)
    return result


def paired(records, pairs, metrics, overlap):
    """Each (method, relative) of ``pairs``: difference of every metric by seed, its p, and p after Holm over all.

    The test is a paired t-test corrected for splits that overlap; ``overlap`` is test rows / training rows.
    """
    rows = []
    for metric in metrics:
        wide = records.pivot(index="seed", columns="method", values=metric)
        for method, relative in pairs:
            difference = wide[method] - wide[relative]
            row = {"metric": metric, "method": method, "against": relative, "difference": difference.mean()}
            p = paired_t(wide[method], wide[relative], overlap=overlap).p_value
            rows.append({**row, "deviation": difference.std(ddof=1), "p": p})
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p"])
    return frame


def show(frame):
    """The frame of :func:`paired` with few digits."""
    frame = frame.copy()
    for column in ("difference", "deviation"):
        frame[column] = [f"{value:+.3f}" if column == "difference" else f"{value:.3f}" for value in frame[column]]
    for column in (name for name in frame.columns if name.startswith("p")):
        frame[column] = [
            "" if np.isnan(value) else f"{value:.3f}" if value >= 1e-3 else "< 0.001" for value in frame[column]
        ]
    return frame


def keep(frame, folder, name):
    """Write a CSV file with few digits."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / name, index=False, float_format="%.6g")


class Clock:
    """Says how long a part took."""

    def __init__(self):
        self.start = time.perf_counter()

    def say(self, text):
        """Print ``text`` with the seconds since the start."""
        print(f"{text} [{time.perf_counter() - self.start:.0f} s]", flush=True)
