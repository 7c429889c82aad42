"""How wide are plain split-conformal intervals around each method's predictions, at equal nominal coverage?

The half width is the conformal quantile of the absolute errors on validation rows (which also stopped training, and
chose settings: a mild reuse), coverage and width are those of the test rows. Reads the predictions that tuned.py and
default.py have stored; trains nothing.

    python benchmarks/nona/intervals.py --cache runs/nona --store runs/nona/store --out runs/nona/nona-intervals.csv
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from sets import SETS, load
from trainer import Stream

from vicinal.heads import conformal_margin

METHODS = {"tuned": ("dense", "dense x8", "nona x8", "ridge"), "default": ("neighbors x8", "blend")}


def measured(stored, method: str, truth: tuple[np.ndarray, np.ndarray], coverage: float) -> tuple[float, float]:
    """Share of test rows covered, and width of the intervals on [0, 1]-scaled labels."""
    errors = [np.abs(stored[f"{method}/{part}"] - y) for part, y in zip(("validation", "test"), truth, strict=True)]
    margin = float(conformal_margin(torch.from_numpy(errors[0]), coverage))
    return float(np.mean(errors[1] <= margin)), 2 * margin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    with given.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["set", "split", "method", "coverage", "width"])
        for name in SETS:
            paths = {(s, r): given.store / f"{name}-{s}-{r}.npz" for s in range(given.splits) for r in METHODS}
            if not all(path.is_file() for path in paths.values()):
                continue
            data = load(name, given.cache)
            for split in data.splits(given.splits):
                stream = Stream.of(split, data.labels, data.groups, split.seed)
                truth = tuple(stream.labels[rows].double().numpy() for rows in (stream.validation, stream.test))
                for recipe, methods in METHODS.items():
                    stored = np.load(paths[split.seed, recipe])
                    for method in methods:
                        covered, width = measured(stored, method, truth, given.coverage)
                        writer.writerow([name, split.seed, method, f"{covered:.4f}", f"{width:.5f}"])


if __name__ == "__main__":
    main()
