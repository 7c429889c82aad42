"""Tables (Markdown) and plots of docs/results/calibration.md, from the file of figures.

Means over splits; the streams of the third plot are in the folder that calibration.py was given as --store.

    python benchmarks/calibration_tables.py --figures benchmarks/results/calibration.csv --images docs/results/images
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

ORDER = ["dense residual", "residual", "spread", "levels", "range", "range, scaled", "local error", "density, hull"]


def markdown(frame: pd.DataFrame, digits: int = 3) -> str:
    """A table with its index as first column."""
    head = [str(frame.index.name or ""), *map(str, frame.columns)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name, row in zip(frame.index, frame.to_numpy(dtype=float), strict=True):
        cells = ["-" if np.isnan(v) else f"{v:.{digits}f}" for v in row]
        lines.append("| " + " | ".join([str(name), *cells]) + " |")
    return "\n".join(lines)


def part(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Rows of an experiment."""
    return table[table["experiment"] == experiment]


def pivot(found: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over splits, sets by methods."""
    return found.groupby(["set", "method"], sort=False)[column].mean().unstack("method")


def intervals(table: pd.DataFrame) -> None:
    """Coverage, width and interval score by set; medians against the neighbor range."""
    found = part(table, "intervals")
    for column in ("covered", "width", "score"):
        print(f"\n{column}\n\n{markdown(pivot(found, column)[ORDER])}")
    lines = {}
    for method, rows in found.groupby("method", sort=False):
        means = {column: rows.groupby("set")[column].mean() for column in ("covered", "width", "score")}
        base = {c: pivot(found, c)["range"] for c in ("width", "score")}
        within = means["covered"].between(0.88, 0.92).mean()
        ratios = {f"{c} against range": (means[c] / base[c]).median() for c in ("width", "score")}
        wins = {"better score than range on": (means["score"] < base["score"][means["score"].index]).mean()}
        quarters = rows[["q1", "q2", "q3", "q4"]].mean().to_dict()
        lines[method] = {"covered": means["covered"].mean(), "sets in 0.88..0.92": within, **ratios, **wins, **quarters}
    print(f"\nsummary\n\n{markdown(pd.DataFrame(lines).T)}")
    by_quarter = found[found["method"] == "range"].groupby("set", sort=False)[["q1", "q2", "q3", "q4"]].mean()
    print(f"\nquarters of the range\n\n{markdown(by_quarter)}")


def shift(table: pd.DataFrame) -> None:
    """Coverage by direction and method, and on how many sets it is within 0.88 .. 0.92."""
    found = part(table, "shift").copy()
    found[["direction", "kind"]] = found["method"].str.split(": ", n=1, expand=True)
    means = found.groupby(["direction", "kind", "set"], sort=False)[["covered", "width"]].mean().reset_index()
    lines = {}
    for (direction, kind), rows in means.groupby(["direction", "kind"], sort=False):
        lines[f"{direction} | {kind}"] = {
            "covered": rows["covered"].mean(),
            "least": rows["covered"].min(),
            "most": rows["covered"].max(),
            "mean miss of 0.9": (rows["covered"] - 0.9).abs().mean(),
            "width": rows["width"].mean(),
        }
    print(f"\nshift\n\n{markdown(pd.DataFrame(lines).T)}")


def rest(table: pd.DataFrame) -> None:
    """Means over splits of everything else."""
    columns = ["covered", "width", "score", "q1", "q2", "q3", "q4", "error"]
    for experiment in ("public", "classes", "label shift", "drift", "rejection", "groups"):
        found = part(table, experiment)
        if len(found):
            means = found.groupby(["set", "method"], sort=False)[columns].mean().dropna(axis=1, how="all")
            means.index = [" | ".join(pair) for pair in means.index]
            print(f"\n{experiment}\n\n{markdown(means, 4 if experiment == 'rejection' else 3)}")


def plot_intervals(table: pd.DataFrame, path: Path) -> None:
    """Coverage by set with its standard error, and the interval score against the dense residual's."""
    from matplotlib.figure import Figure

    found = part(table, "intervals")
    shown = {"dense residual": "#9e9e9e", "residual": "#ff8a65", "spread": "#4db6ac", "range": "#00695c"}
    names = list(dict.fromkeys(found["set"]))
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.axvspan(0.88, 0.92, color="#e0f2f1")
    base = pivot(found, "score")["dense residual"]
    for place, (method, color) in enumerate(shown.items()):
        rows = found[found["method"] == method].groupby("set", sort=False)["covered"]
        heights = np.arange(len(names)) + 0.17 * (place - 1.5)
        means, errors = rows.mean()[names], rows.sem()[names]
        left.errorbar(means, heights, xerr=errors, fmt="o", ms=4, lw=1, color=color, label=method)
        if method != "dense residual":
            change = 100 * (pivot(found, "score")[method] / base - 1)[names]
            right.plot(change, heights, "o", ms=4, color=color)
    right.axvline(0, color="#9e9e9e", lw=1)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlabel("share covered (wanted: 0.9), standard error over splits")
    right.set_xlabel("interval score against dense residual, %")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)


def plot_shift(table: pd.DataFrame, path: Path) -> None:
    """Coverage of all sets under each constructed shift."""
    from matplotlib.figure import Figure

    found = part(table, "shift").copy()
    found[["direction", "kind"]] = found["method"].str.split(": ", n=1, expand=True)
    means = found.groupby(["direction", "kind", "set"], sort=False)["covered"].mean()
    kinds = list(dict.fromkeys(found["kind"]))
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    for axes, direction in zip(figure.subplots(1, 4, sharey=True), dict.fromkeys(found["direction"]), strict=True):
        axes.axvspan(0.88, 0.92, color="#e0f2f1")
        for place, kind in enumerate(kinds):
            values = means[direction, kind].to_numpy()
            axes.plot(values, np.full(len(values), place), "|", ms=11, color="#00695c", alpha=0.6)
            axes.plot(values.mean(), place, "D", ms=5, color="#d84315")
        axes.set_title(direction, fontsize=10)
        axes.set_yticks(range(len(kinds)), kinds)
        axes.set_xlim(0.52, 1.0)
    axes.invert_yaxis()
    figure.supxlabel("share covered under shift: a line for each set, a diamond for their mean", fontsize=10)
    figure.savefig(path, dpi=110)


def plot_drift(store: Path, path: Path) -> None:
    """Coverage of the last 200 steps along both streams, first seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    colors = {"fixed": "#9e9e9e", "SF-OGD": "#00695c", "SAOCP": "#ff8a65"}
    for axes, stream in zip(figure.subplots(1, 2, sharey=True), ("domains", "growing noise"), strict=True):
        axes.axhline(0.9, color="black", lw=0.8, ls=":")
        for method, color in colors.items():
            scores, radii = np.load(store / f"{stream}-{method}.npy")
            inside = np.convolve(scores <= radii, np.ones(200) / 200, mode="valid")
            axes.plot(np.arange(len(inside)) + 200, inside, color=color, lw=1.4, label=method)
        axes.set_title(
            "tweets, movies, amazon, nyt" if stream == "domains" else "tweets with growing noise", fontsize=10
        )
        axes.set_xlabel("step")
    axes.legend(frameon=False)
    figure.supylabel("covered, of the last 200", fontsize=10)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--store", type=Path, help="folder with the streams that calibration.py kept")
    given = parser.parse_args()
    table = pd.read_csv(given.figures)
    given.images.mkdir(parents=True, exist_ok=True)
    intervals(table)
    shift(table)
    rest(table)
    plot_intervals(table, given.images / "calibration-intervals.png")
    plot_shift(table, given.images / "calibration-shift.png")
    if given.store is not None:
        plot_drift(given.store, given.images / "calibration-drift.png")


if __name__ == "__main__":
    main()
