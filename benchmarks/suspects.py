"""Wrong labels among the first suspects of ``vicinal explore``, and what mending them does to the test error.

Five in a hundred labels of the training rows get the label of another row. Each method then names fifty suspects. What
they hold is counted as a share of what fifty could hold. A person mends those that are wrong: the bank is relabelled,
and the model is also fitted anew. Nothing that ranks the rows sees a test row or knows which labels are wrong, but for
"true labels": the same model fitted on the true labels, which no method can have.

"worth" is how many labels the page lists as worth checking, "right" how many of them are wrong, "expected" how many it
says are, and "worth_clean" how many it lists without any wrong label. "proposed" is the share of the wrong labels found
whose prediction is nearer to the true label. The parts:

- vectors: texts, photos, and photos beside numbers, as frozen vectors of at most 3,000 rows (nona_sets.py).
- tables: the tables of benchmarks/tables.py (see there for the files).

    pip install cleanlab==2.9.0   # for its lines; they are left out without it
    python benchmarks/suspects.py --part vectors --data ../shared/data --cache runs/suspects
    python benchmarks/suspects.py --part tables --data FILES
"""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nona_sets
import numpy as np
import pandas as pd
import tables
from resumable import RESULTS, Lines, asked
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import NeighborRegressor
from vicinal.data import make_splits
from vicinal.evaluation import left_out_predictions
from vicinal.workflows import Explorer

SHARE, LOOKED = 0.05, 50
VECTORS = {"tweets": 1, "stsb": 1, "amazon": 1, "books": 1, "houses+table": 2, "blood": 4}
PARTS = {"vectors": VECTORS, "tables": dict.fromkeys(tables.SETS, 1)}
STRENGTHS = np.logspace(0, 6, 13)


class Case(NamedTuple):
    """A set, training rows of a split of it with some wrong labels, and its test rows."""

    rows: pd.DataFrame
    features: np.ndarray
    groups: np.ndarray | None
    labels: np.ndarray
    known: np.ndarray
    test: np.ndarray
    spoiled: np.ndarray

    @property
    def true(self) -> np.ndarray:
        """Labels of the training rows before some were replaced."""
        return self.labels[self.known]

    @property
    def wrong(self) -> np.ndarray:
        """Places of the training rows with a wrong label."""
        return np.flatnonzero(self.true != self.spoiled)

    def among(self, at: np.ndarray) -> dict[str, list]:
        """Groups of these rows, as estimators take them."""
        return {} if self.groups is None else {"groups": self.groups[at].tolist()}


def case_of(name: str, part: str, seed: int, data: Path, cache: Path) -> Case:
    """A split whose training rows have some labels of others."""
    if part == "tables":
        rows, labels = tables.read(name, data)
        features, groups = np.asarray(tables.columns_of(rows).fit_transform(rows), dtype=float), None
    else:
        cache.mkdir(parents=True, exist_ok=True)
        nona_sets.prepare(nona_sets.SETS[name][0], data, cache)
        one = nona_sets.load(name, cache)
        rows, labels, features = pd.DataFrame({"vector": list(one.features)}), one.labels, one.features.astype(float)
        groups = None if len(np.unique(one.groups)) == len(labels) else one.groups
    split, rng = make_splits(len(labels), number=10, groups=groups)[seed], np.random.default_rng(seed)
    known = np.sort(np.concatenate([split.train, split.validation]))
    true = labels[known]
    spoiled, chosen = true.copy(), rng.choice(len(known), round(SHARE * len(known)), replace=False)
    spoiled[chosen] = true[(chosen + rng.integers(1, len(known), len(chosen))) % len(known)]
    return Case(rows, features, groups, labels, known, split.test, spoiled)


class Model:
    """A model of a case, in a folder, as ``vicinal explore`` has it."""

    def __init__(self, case: Case, labels: np.ndarray, **settings: float) -> None:
        self.case = case
        columns = {"vector": "vector"} if list(case.rows) == ["vector"] else None
        self.model = NeighborRegressor(columns=columns, **settings)
        names = np.arange(len(case.known))
        self.model.fit(case.rows.iloc[case.known], labels, ids=names, **case.among(case.known))

    def suspects(self, number: int = LOOKED) -> pd.DataFrame:
        """The rows whose labels look most wrong, as ``vicinal explore`` lists them."""
        with tempfile.TemporaryDirectory() as place:
            self.model.save(f"{place}/model")
            return pd.DataFrame(Explorer(Path(place, "model")).suspects(number))

    def error(self) -> float:
        """Squared error on the test rows over the variance of the true labels."""
        predicted = self.model.predict(self.case.rows.iloc[self.case.test], **self.case.among(self.case.test))
        return float(np.mean((predicted - self.case.labels[self.case.test]) ** 2) / self.case.true.var())


def by_distance(case: Case, predictions: np.ndarray) -> np.ndarray:
    """The rows whose labels are farthest from their predictions."""
    return np.argsort(-np.abs(case.spoiled - predictions), kind="stable")[:LOOKED]


def by_ridge(case: Case) -> np.ndarray:
    """Suspects by left-out residuals of a ridge regression."""
    groups = None if case.groups is None else case.groups[case.known]
    return by_distance(case, left_out_predictions(case.features[case.known], case.spoiled, groups=groups))


def by_cleanlab(case: Case, seed: int) -> np.ndarray | None:
    """Suspects by confident learning for numbers (Zhou et al. 2023), with a tuned ridge regression."""
    try:
        from cleanlab.regression.learn import CleanLearning
    except ImportError:
        return None
    ridge = make_pipeline(StandardScaler(), RidgeCV(STRENGTHS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issues = CleanLearning(ridge, seed=seed).find_label_issues(case.features[case.known], case.spoiled)
    return np.argsort(issues["label_quality"].to_numpy(), kind="stable")[:LOOKED]


def listed(case: Case, suspects: pd.DataFrame) -> dict[str, float]:
    """What the page lists as worth checking, and how often it proposes the right label."""
    worth = suspects[suspects["chance"] >= 0.5]
    found = suspects[suspects["id"].isin(case.wrong)]
    true = case.true[found["id"]]
    nearer = np.abs(found["said"] - true) < np.abs(found["said"] - found["label"])
    wrong = worth["id"].isin(case.wrong).sum()
    return {"worth": len(worth), "expected": worth["chance"].sum(), "right": wrong, "proposed": nearer.mean()}


def runs(case: Case, seed: int) -> Iterator[dict]:
    """One line a method."""

    def line(method: str, suspects: np.ndarray, **more: float) -> dict:
        share = len(np.intersect1d(suspects, case.wrong)) / min(LOOKED, len(case.wrong))
        return {"method": method, "rows": len(case.known), "wrong": len(case.wrong), "found": share} | more

    yield line("ridge", by_ridge(case))
    if (named := by_cleanlab(case, seed)) is not None:
        yield line("cleanlab", named)
    clean = Model(case, case.true)
    every = clean.suspects(len(case.known)).set_index("id").reindex(np.arange(len(case.known)))
    worth, clean_error = int((every["chance"] >= 0.5).sum()), clean.error()
    yield line("true labels", by_distance(case, every["said"].fillna(pd.Series(case.spoiled)).to_numpy()))
    for method, settings in (("explore", {}), ("explore, folds", {"validation_fraction": 0})):
        model = Model(case, case.spoiled, **settings)
        before, suspects = model.error(), model.suspects()
        found = np.intersect1d(suspects["id"], case.wrong)
        model.model.relabel(found, case.true[found])
        errors = {"before": before, "mended": model.error(), "clean": clean_error}
        if not settings:
            labels = case.spoiled.copy()
            labels[found] = case.true[found]
            errors["refitted"] = Model(case, labels).error()
        yield line(method, suspects["id"].to_numpy(), **listed(case, suspects), worth_clean=worth, **errors)


def main() -> None:
    given = asked(__doc__, part=[*PARTS], data=Path, cache=Path("runs/suspects"), out=RESULTS / "suspects.csv")
    lines = Lines(given.out, "part", "set", "seed")
    for part, name in [(one, name) for one in given.part for name in PARTS[one]]:
        for seed in range(PARTS[part][name]):
            if (part, name, seed) not in lines:
                case = case_of(name, part, seed, given.data, given.cache)
                lines.add({"part": part, "set": name, "seed": seed} | line for line in runs(case, seed))


if __name__ == "__main__":
    main()
