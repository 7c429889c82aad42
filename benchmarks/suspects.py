"""Wrong labels among the first suspects of ``vicinal explore``, and what mending them does to the test error.

Five in a hundred labels of the training rows get the label of another row. Each method then names fifty suspects. What
they hold is counted as a share of what fifty could hold. A person mends those that are wrong: the bank is relabelled,
and the model is also fitted anew. Nothing that ranks the rows sees a test row or knows which labels are wrong, but for
"true labels": left-out residuals of a ridge regression on the true labels, which no method can have.

"worth" is how many labels the page lists as worth checking, "right" how many of them are wrong, "expected" how many it
says are, and "worth_clean" how many it lists without any wrong label. "proposed" is the share of the wrong labels found
whose prediction is nearer to the true label.

    pip install cleanlab==2.9.0   # for its lines; they are left out without it
    python benchmarks/suspects.py --data ../shared/data --cache runs/suspects --out benchmarks/results/suspects.csv
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).parent / "nona"))

import sets
from sets import RegressionSet

from vicinal import NeighborRegressor
from vicinal.evaluation import left_out_predictions
from vicinal.workflows import Explorer

SHARE, LOOKED = 0.05, 50
SEEDS = {"tweets": 1, "stsb": 1, "amazon": 1, "books": 1, "houses+table": 2, "blood": 4}
STRENGTHS = np.logspace(0, 6, 13)


class Case(NamedTuple):
    """Training rows of a split with some wrong labels, and its test rows."""

    known: np.ndarray
    test: np.ndarray
    true: np.ndarray
    labels: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Places of the rows with a wrong label."""
        return np.flatnonzero(self.true != self.labels)


def spoiled(data: RegressionSet, seed: int) -> Case:
    """A split whose training rows have some labels of others."""
    split, rng = data.splits(10)[seed], np.random.default_rng(seed)
    known = np.sort(np.concatenate([split.train, split.validation]))
    true = data.labels[known]
    labels, chosen = true.copy(), rng.choice(len(known), round(SHARE * len(known)), replace=False)
    labels[chosen] = true[(chosen + rng.integers(1, len(known), len(chosen))) % len(known)]
    return Case(known, split.test, true, labels)


class Model:
    """A model of a case, in a folder, as ``vicinal explore`` has it."""

    def __init__(self, data: RegressionSet, case: Case, labels: np.ndarray, **settings: float) -> None:
        self.data, self.case = data, case
        self.grouped = len(np.unique(data.groups)) < len(data.groups)
        self.model = NeighborRegressor(columns={"vector": "vector"}, **settings)
        names = np.arange(len(case.known))
        self.model.fit(self.rows(case.known), labels, ids=names, **self.groups(case.known))

    def rows(self, at: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame({"vector": list(self.data.features[at])})

    def groups(self, at: np.ndarray) -> dict:
        return {"groups": self.data.groups[at].tolist()} if self.grouped else {}

    def suspects(self) -> pd.DataFrame:
        """The rows whose labels look most wrong, as ``vicinal explore`` lists them."""
        with tempfile.TemporaryDirectory() as place:
            self.model.save(f"{place}/model")
            return pd.DataFrame(Explorer(Path(place, "model")).suspects(LOOKED))

    def error(self) -> float:
        """Squared error on the test rows over the variance of the true labels."""
        said = self.model.predict(self.rows(self.case.test), **self.groups(self.case.test))
        return float(np.mean((said - self.data.labels[self.case.test]) ** 2) / self.case.true.var())


def by_ridge(data: RegressionSet, case: Case, labels: np.ndarray) -> np.ndarray:
    """Suspects by left-out residuals of a ridge regression fitted on ``labels``."""
    grouped = len(np.unique(data.groups)) < len(data.groups)
    said = left_out_predictions(data.features[case.known], labels, groups=data.groups[case.known] if grouped else None)
    return np.argsort(-np.abs(case.labels - said), kind="stable")[:LOOKED]


def by_cleanlab(data: RegressionSet, case: Case, seed: int) -> np.ndarray | None:
    """Suspects by confident learning for numbers (Zhou et al. 2023), with a tuned ridge regression."""
    try:
        from cleanlab.regression.learn import CleanLearning
    except ImportError:
        return None
    ridge = make_pipeline(StandardScaler(), RidgeCV(STRENGTHS))
    finder = CleanLearning(ridge, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = finder.find_label_issues(data.features[case.known].astype(float), case.labels)
    return np.argsort(found["label_quality"].to_numpy(), kind="stable")[:LOOKED]


def runs(data: RegressionSet, seed: int) -> Iterator[dict]:
    """One line a method."""
    case = spoiled(data, seed)

    def line(method: str, suspects: np.ndarray, **errors: float) -> dict:
        hits = len(np.intersect1d(suspects, case.wrong))
        share = hits / min(LOOKED, len(case.wrong))
        return {
            "set": data.name,
            "seed": seed,
            "method": method,
            "rows": len(case.known),
            "wrong": len(case.wrong),
            "found": share,
        } | errors

    yield line("ridge", by_ridge(data, case, case.labels))
    yield line("true labels", by_ridge(data, case, case.true))
    if (named := by_cleanlab(data, case, seed)) is not None:
        yield line("cleanlab", named)
    untouched = Model(data, case, case.true)
    clean, named_clean = untouched.error(), int((untouched.suspects()["chance"] >= 0.5).sum())
    for method, settings in (("explore", {}), ("explore, folds", {"validation_fraction": 0})):
        model = Model(data, case, case.labels, **settings)
        before, listed = model.error(), model.suspects()
        suspects = listed["id"].to_numpy()
        right = np.intersect1d(suspects, case.wrong)
        worth = listed[listed["chance"] >= 0.5]
        of_wrong = listed[listed["id"].isin(right)]
        true = case.true[of_wrong["id"]]
        nearer = np.abs(of_wrong["said"] - true) < np.abs(of_wrong["said"] - of_wrong["label"])
        cut = {"worth": len(worth), "expected": worth["chance"].sum(), "right": worth["id"].isin(right).sum()}
        cut |= {"proposed": nearer.mean(), "worth_clean": named_clean}
        model.model.relabel(right, case.true[right])
        mended = case.labels.copy()
        mended[right] = case.true[right]
        refitted = np.nan if settings else Model(data, case, mended).error()
        yield line(method, suspects, **cut, before=before, mended=model.error(), refitted=refitted, clean=clean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("runs/suspects"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=[*SEEDS], choices=[*SEEDS])
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    done = pd.read_csv(given.out) if given.out.is_file() else pd.DataFrame(columns=["set", "seed"])
    for name in given.sets:
        sets.prepare(name, given.data, given.cache)
        data = sets.load(name, given.cache)
        for seed in range(SEEDS[name]):
            if ((done["set"] == name) & (done["seed"] == seed)).any():
                continue
            lines = pd.DataFrame(runs(data, seed))
            done = pd.concat([done, lines], ignore_index=True) if len(done) else lines
            done.round(4).to_csv(given.out, index=False)
            print(lines.round(3).to_string(), flush=True)
    print(done.groupby(["set", "method"]).mean(numeric_only=True).round(3))


if __name__ == "__main__":
    main()
