"""Tables and plots of the page docs/results/nona.md out of the files of finished runs.

python benchmarks/nona/summary.py --results benchmarks/results --images docs/results/images
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from plots import change_plot, difference_plot
from scipy.stats import wilcoxon

from vicinal.evaluation import Run, Summary, significance, summarize

PAPER = ("dense", "dense+knn", "nona", "nona+knn")
TUNED = (*PAPER, "ridge", "boosting", "knn")
SINGLE = ("dense", "dense+knn", "ridge", "boosting", "knn")


def read(path: Path, recipe: str) -> list[Run]:
    """Runs of one recipe, MSE x 1000."""
    runs: list[Run] = []
    if not path.is_file():
        return runs
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["recipe"] == recipe:
                sizes = tuple(int(row[part]) for part in ("train", "validation", "test"))
                metrics = {"mse": 1000 * float(row["mse"])}
                split = int(row["split"])
                runs.append(Run(row["set"], split, split, row["method"], metrics, float(row["seconds"]), "", sizes))
    return runs


def complete(runs: list[Run], methods: tuple[str, ...], most: int = 10) -> list[Run]:
    """Runs of the sets on which every method has all splits; of fewer splits if that gives half as many sets again."""
    done = {(run.dataset, run.method, run.split) for run in runs}
    sets = dict.fromkeys(run.dataset for run in runs)

    def whole(splits):
        return {name for name in sets if all((name, m, s) in done for m in methods for s in range(splits))}

    found = {n: whole(n) for n in dict.fromkeys((most, 5, 3)) if n <= most}
    largest = max(len(kept) for kept in found.values())
    splits = next((n for n, kept in found.items() if kept and largest < 1.5 * len(kept)), most)
    kept = found.get(splits, set())
    return [run for run in runs if run.dataset in kept and run.method in methods and run.split < splits]


def number_of_splits(runs: list[Run]) -> int:
    """How many splits the runs are of."""
    return len({run.split for run in runs})


def table(runs: list[Run], methods: tuple[str, ...], versus: str, against: str = "dense") -> str:
    """Markdown: mean and deviation of each method, the change of ``versus`` against ``against`` with its p-value."""
    cells = {(one.dataset, one.method): one for one in summarize(runs, "mse", reference=against)}
    lines = [f"| data | {' | '.join(methods)} | {versus} against {against} |", "|---" * (len(methods) + 2) + "|"]
    for name in dict.fromkeys(dataset for dataset, _ in cells):
        best = min(cells[name, method].mean for method in methods)
        shown = []
        for method in methods:
            one = cells[name, method]
            text = f"{one.mean:.1f} ± {one.deviation:.1f}"
            shown.append(f"**{text}**" if one.mean == best else text)
        one = cells[name, versus]
        lines.append(f"| {name} | {' | '.join(shown)} | {100 * one.change:+.1f} % (p = {one.p_value:.2g}) |")
    return "\n".join(lines)


def changes(runs: list[Run], method: str, against: str) -> dict[str, float]:
    """Relative change of the mean error of each set, in per cent."""
    cells: list[Summary] = summarize(runs, "mse", reference=against)
    return {one.dataset: 100 * one.change for one in cells if one.method == method}


def against_best(runs: list[Run], method: str, others: tuple[str, ...]) -> dict[str, float]:
    """Relative change of the mean error against the best mean of ``others`` on each set, in per cent."""
    means = {(one.dataset, one.method): one.mean for one in summarize(runs, "mse", reference=None)}
    sets = dict.fromkeys(name for name, _ in means)
    return {name: 100 * (means[name, method] / min(means[name, m] for m in others) - 1) for name in sets}


def by_set(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Mean error by set and method."""
    means: dict[str, dict[str, float]] = {}
    for one in summarize(runs, "mse", reference=None):
        means.setdefault(one.dataset, {})[one.method] = one.mean
    return means


def fill(page: Path, blocks: dict[str, str]) -> None:
    """Write the named blocks of the page anew."""
    text = page.read_text()
    for name, block in blocks.items():
        before, found, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        if found and closing:
            text = f"{before}{found}\n{block}\n\n{closing}{after}"
    page.write_text(text)


def of_heads(given: argparse.Namespace) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Blocks with the table and the tests of each recipe, and the changes of nona against dense by recipe."""
    blocks, drawn = {}, {}
    for recipe, methods in (("paper", PAPER), ("tuned", TUNED)):
        runs = complete(read(given.results / f"nona-{recipe}.csv", recipe), methods, given.splits)
        if not runs:
            continue
        values = changes(runs, "nona", "dense")
        drawn[f"{recipe} recipe"] = values
        firsts = {name: min(means, key=means.get) for name, means in by_set(runs).items()}
        nearest = sum(first.startswith("nona") for first in firsts.values())
        told = [
            f"{number_of_splits(runs)} splits. NONA against dense: median {np.median(list(values.values())):+.1f} % "
            f"over {len(values)} sets; NONA or NONA+k-NN is best on {nearest} of {len(firsts)}."
        ]
        found = significance(runs, "mse", methods=methods)
        if found is not None:
            told.append(found.sentence[0].upper() + found.sentence[1:] + ".")
            difference_plot(found, given.images / f"nona-ranks-{recipe}.png", f"Average ranks, {recipe} recipe")
            told.append(f"\n\n![Average ranks under the {recipe} recipe](images/nona-ranks-{recipe}.png)")
        blocks[recipe] = table(runs, methods, "nona") + "\n\n" + " ".join(told).replace(" \n", "\n")
    return blocks, drawn


def of_default(given: argparse.Namespace) -> dict[str, str]:
    """The default against the best single method of each set, and the neighbors alone against dense members."""
    tuned = read(given.results / "nona-tuned.csv", "tuned")
    default = read(given.results / "nona-default.csv", "default")
    methods = ("dense x8", "nona x8", "dense x8, same settings", "neighbors x8", "blend")
    runs = complete([*tuned, *default], (*SINGLE, *methods), given.splits)
    if not runs:
        return {}
    lines = [
        f"{number_of_splits(runs)} splits; changes of the mean error, and Wilcoxon's test of them over sets:",
        "",
    ]
    lines += ["| | median | worst | p over sets | by set, % |", "|---|---|---|---|---|"]
    drawn = {}
    for label, method, others in (
        ("neighbors x8 (the default) against the best single", "neighbors x8", SINGLE),
        ("blend against the best single", "blend", SINGLE),
        ("dense x8 against the best single", "dense x8", SINGLE),
        ("neighbors x8 against dense x8", "neighbors x8", ("dense x8",)),
        ("neighbors x8 against dense x8, same settings", "neighbors x8", ("dense x8, same settings",)),
        ("nona x8 against dense x8", "nona x8", ("dense x8",)),
    ):
        values = against_best(runs, method, others)
        shown = ", ".join(f"{name} {value:+.1f}" for name, value in sorted(values.items(), key=lambda one: one[1]))
        logs = np.log1p(np.array(list(values.values())) / 100)
        chance = f"{wilcoxon(logs).pvalue:.2g}" if len(logs) > 5 else "-"
        middle = np.median(list(values.values()))
        lines.append(f"| {label} | {middle:+.1f} | {max(values.values()):+.1f} | {chance} | {shown} |")
        if others == SINGLE:
            drawn[method] = values
    change_plot(drawn, given.images / "nona-default.png", "Against the best single method of each set")
    lines += ["", "![Change of the error against the best single method by set](images/nona-default.png)"]
    return {"default": table(runs, methods, "neighbors x8", "dense x8") + "\n\n" + "\n".join(lines)}


def of_changes(path: Path, recipe: str, base: str) -> str:
    """Changes of each variant against ``base`` on the same splits, in per cent, one column a set."""
    runs = read(path, recipe)
    cells = {(one.dataset, one.method): one for one in summarize(runs, "mse", reference=base)}
    sets = list(dict.fromkeys(name for name, _ in cells))
    lines = [f"| change | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for method in dict.fromkeys(name for _, name in cells):
        shown = []
        for name in sets:
            one = cells.get((name, method))
            if one is None:
                shown.append("")
            elif method == base:
                shown.append(f"{one.mean:.1f} ± {one.deviation:.1f}")
            else:
                shown.append(f"{100 * one.change:+.1f} % (p = {one.p_value:.2g})")
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def of_grid(path: Path, recipe: str, base: str) -> str:
    """A table of each set: methods ``row | column``, change of the mean error against ``base`` in per cent."""
    cells = {(one.dataset, one.method): one for one in summarize(read(path, recipe), "mse", reference=base)}
    rows, columns = (list(dict.fromkeys(method.split(" | ")[side] for _, method in cells)) for side in (0, 1))
    tables = []
    for name in dict.fromkeys(name for name, _ in cells):
        lines = [f"| {name} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for row in rows:
            shown = [cells[name, f"{row} | {column}"] for column in columns]
            texts = [f"{one.mean:.1f}" if one.method == base else f"{100 * one.change:+.0f} %" for one in shown]
            lines.append(f"| {row} | {' | '.join(texts)} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def of_screening(path: Path) -> str:
    """Changes of the main readout of each screened variant against the dense members, mean over splits."""
    with path.open() as file:
        errors = {
            (row["set"], row["split"], row["variant"], row["readout"]): float(row["mse"])
            for row in csv.DictReader(file)
        }
    sets = list(dict.fromkeys(key[0] for key in errors))
    shown = list(dict.fromkeys((key[2], readout) for key in errors for readout in main_readouts(key[2])))
    lines = [f"| variant | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for variant, readout in shown:
        cells = []
        for name in sets:
            splits = [k[1] for k in errors if k[0] == name and k[2:] == (variant, readout)]
            change = [errors[name, s, variant, readout] / errors[name, s, "dense", "dense"] - 1 for s in splits]
            cells.append(f"{100 * np.mean(change):+.1f} %" if change else "")
        if any(cells):
            lines.append(f"| {variant if readout in ('dense', 'neighbors') else readout} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main_readouts(variant: str) -> tuple[str, ...]:
    """What the page shows of a variant."""
    if variant == "dense":
        return "dense", "dense, one", "ridge", "k-NN"
    if variant.startswith("dense"):
        return ("dense",)
    return ("neighbors", "neighbors, one") if variant == "nona" else ("neighbors",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    given.images.mkdir(parents=True, exist_ok=True)
    blocks, drawn = of_heads(given)
    if drawn:
        change_plot(drawn, given.images / "nona-changes.png", "NONA against dense")
        blocks["changes"] = "![Change of the error of NONA against dense by set](images/nona-changes.png)"
    blocks |= of_default(given)
    ablations = given.results / "nona-ablations.csv"
    if ablations.is_file():
        blocks["ablations"] = of_changes(ablations, "ablation", "base")
        blocks["similarity by mask"] = of_grid(ablations, "similarity by mask", "l2 | S2")
        blocks["dense"] = of_grid(ablations, "dense, batch by width", "32 | 25")
        blocks["batch by width"] = of_grid(ablations, "nona, batch by width", "32 | 25")
        blocks["outlook"] = of_changes(ablations, "outlook", "base")
    screening = given.results / "nona-screening.csv"
    if screening.is_file():
        blocks["screening"] = of_screening(screening)
    for name, block in blocks.items():
        print(f"## {name}\n\n{block}\n")
    if given.page is not None:
        fill(given.page, blocks)


if __name__ == "__main__":
    main()
