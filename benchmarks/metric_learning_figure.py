"""Draws docs/images/metric-learning.png from the runs of examples/omniglot.py, and prints the differences by seed.

Run that example first, with ``--out benchmarks/results/metric-learning-omniglot.csv``.

    python benchmarks/metric_learning_figure.py
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from vicinal.report.theme import CLASSES, blank, style

ROOT = Path(__file__).resolve().parents[1]
THEIRS = "pytorch-metric-learning"


def main() -> None:
    """Read, print, draw."""
    runs = pd.read_csv(ROOT / "benchmarks" / "results" / "metric-learning-omniglot.csv")
    pixels = float(runs.loc[runs["library"] == "-", "map@r"].iloc[0])
    runs = runs[runs["library"] != "-"]
    names = list(dict.fromkeys(runs["loss"]))
    wide = runs.pivot(index=["loss", "seed"], columns="library", values="map@r")
    difference = wide["vicinal"] - wide[THEIRS]
    print(difference.groupby("loss").agg(["mean", "std"]).reindex(names).round(4))
    test = ttest_1samp(difference, 0)
    error = difference.std() / np.sqrt(len(difference))
    print(f"all: {difference.mean():.4f} +- {error:.4f} (standard error), p = {test.pvalue:.2f}")
    with style():
        figure, axes = blank(6.4, 3.2)
        for shift, color, library in ((-0.12, CLASSES[0], "vicinal"), (0.12, CLASSES[1], THEIRS)):
            for place, name in enumerate(names):
                found = runs[(runs["loss"] == name) & (runs["library"] == library)]["map@r"]
                label = library if place == 0 else None
                axes.errorbar(
                    place + shift, found.mean(), found.std(), fmt="o", color=color, capsize=4, markersize=6, label=label
                )
                axes.scatter(np.full(len(found), place + shift), found, s=12, color=color, alpha=0.5)
        axes.axhline(pixels, color="0.5", linestyle=":", linewidth=1)
        axes.text(len(names) - 0.6, pixels + 0.008, "pixels", ha="right", color="0.4", fontsize=8)
        axes.set(ylabel="MAP@R, characters never seen", ylim=(0, 0.52))
        axes.set_xticks(range(len(names)), [name.replace("_", "-") for name in names])
        axes.legend(loc="lower left", bbox_to_anchor=(0, 0.2), fontsize=8, frameon=False)
        figure.savefig(ROOT / "docs" / "images" / "metric-learning.png", dpi=110)


if __name__ == "__main__":
    main()
