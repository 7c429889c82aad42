"""Rows of two tables: ``RowMatcher`` on four public sets with the published pairs: docs/results/match.md.

The sets are those of DeepMatcher (Mudgal et al., SIGMOD 2018) as Ditto's repository holds them: labelled pairs of
serialized rows, split into train, valid and test. The two tables are the distinct texts of either side, columns parsed
from ``COL name VAL value``. Every figure is a line of the CSV as soon as it is known; a run that was stopped goes on.

    python benchmarks/matching_rows.py --data DATA/retrieval --cache runs/matching-rows
    python benchmarks/matching_rows.py --data DATA/retrieval --cache runs/matching-rows --tune   # an hour a set
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from resumable import RESULTS, Lines, asked
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from vicinal.calibration import best_f1
from vicinal.estimators import RowMatcher, TuningPlan
from vicinal.estimators.pair_scorers import BoostedPairs
from vicinal.linkage.cell_forms import shown_text
from vicinal.metrics import link_quality

SETS = ("abt_buy", "amazon_google", "walmart_amazon", "dblp_acm")
SEEDS, DRAWS = 3, 1000
READ, LINKAGE = "matcher, tune='all'", "recordlinkage, logistic regression"
PLAN = TuningPlan(tune="all", epochs=4, rows=10_000, batch_size=32, precision="bf16-mixed")
"""What ``tune="all"`` does by itself, but in bfloat16."""

KEY = ("set", "method", "seed")


def parsed(text: str) -> dict[str, str]:
    """The cells of a serialized row."""
    return {name.strip(): cell.strip() for name, cell in re.findall(r"COL (.*?) VAL (.*?)(?= COL |$)", text)}


def read(data: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Both tables, and the pairs with their split; pairs with two labels outside of the test pairs are left out."""
    pairs = pd.read_parquet(data / f"pairs_{name}.parquet")
    tables = []
    for side in ("left", "right"):
        texts = pd.Index(pairs[side].unique())
        table = pd.DataFrame([parsed(text) for text in texts]).replace("", None)
        for column in table.columns:
            number = pd.to_numeric(table[column], errors="coerce")
            if number.notna().sum() == table[column].notna().sum() > 0:
                table[column] = number
        table.insert(0, "id", [f"{side[0]}{i}" for i in range(len(table))])
        tables.append(table)
        pairs[side] = table["id"].to_numpy()[texts.get_indexer(pairs[side])]
    known = pairs["split"] != "test"
    twice = pairs[known].groupby(["left", "right"])["match"].transform("nunique") > 1
    return tables[0], tables[1], pairs.drop(index=twice.index[twice])


def interval(said: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Bootstrap interval of F1, 95 %, over pairs."""
    random = np.random.default_rng(0)
    draws = [random.integers(0, len(truth), len(truth)) for _ in range(DRAWS)]
    low, high = np.quantile([link_quality(said[at], truth[at]).f1 for at in draws], [0.025, 0.975])
    return float(low), float(high)


def scored(chances: np.ndarray, truth: np.ndarray, threshold: float) -> dict[str, float]:
    """Quality on the test pairs at a threshold."""
    said = chances >= threshold
    low, high = interval(said, truth)
    return {
        **dict(zip(("precision", "recall", "f1"), link_quality(said, truth), strict=True)),
        "low": low,
        "high": high,
    }


def judged(lines: Lines, key: tuple[str, str, int], chances: np.ndarray, pairs: pd.DataFrame) -> None:
    """Write down the quality on the test pairs, at the threshold that is best on the valid ones."""
    matches, (valid, test) = (
        pairs["match"].to_numpy(),
        (pairs["split"].to_numpy() == part for part in ("valid", "test")),
    )
    lines.put(key, scored(chances[test], matches[test], best_f1(chances[valid], matches[valid])))


Fit = Callable[[np.ndarray, np.ndarray, int], Callable[[np.ndarray], np.ndarray]]


def boosted_by_scikit_learn(features: np.ndarray, matches: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Boosting with its defaults."""
    model = GradientBoostingClassifier(random_state=seed).fit(features, matches)
    return lambda rows: model.predict_proba(rows)[:, 1]


def by_features(lines: Lines, name: str, model: RowMatcher, pairs: pd.DataFrame) -> None:
    """The scorer on parts of the features."""
    features, matches = model.tables_.pair_features(positions(model, pairs)), pairs["match"].to_numpy()
    train = pairs["split"].to_numpy() == "train"
    names = model.tables_.features.names
    rivals = np.array(["above the best other" in each for each in names])
    strings = np.array([": vectors" not in each and each != "row: vectors" for each in names]) & ~rivals
    variants: dict[str, tuple[np.ndarray, Fit]] = {
        "the pair alone": (~rivals, lambda *known: BoostedPairs.fit(*known).chances),
        "string similarities, boosting": (strings, boosted_by_scikit_learn),
    }
    for method, (columns, fit) in variants.items():
        for seed in range(SEEDS):
            if (name, method, seed) not in lines:
                chances = fit(features[train][:, columns], matches[train], seed)
                judged(lines, (name, method, seed), chances(features[:, columns]), pairs)


def tfidf(lines: Lines, name: str, tables: list[pd.DataFrame], pairs: pd.DataFrame) -> None:
    """Products and differences of tf-idf vectors of whole rows, and logistic regression."""
    if (name, "tf-idf, logistic regression", 0) in lines:
        return
    texts = [table.drop(columns="id").map(shown_text).agg(" ".join, axis=1) for table in tables]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2).fit(pd.concat(texts))
    sides = zip(("left", "right"), texts, tables, strict=True)
    left, right = (
        vectorizer.transform(text)[pd.Index(table["id"]).get_indexer(pairs[side])] for side, text, table in sides
    )
    product = left.multiply(right)
    features = scipy.sparse.hstack([product, abs(left - right), product.sum(axis=1)], format="csr")
    matches, train = pairs["match"].to_numpy(), pairs["split"].to_numpy() == "train"
    grid = {"C": [0.1, 1, 10, 100, 1000]}
    inner = GridSearchCV(LogisticRegression(max_iter=1000), grid, scoring="neg_log_loss", cv=3)
    chances = inner.fit(features[train], matches[train]).predict_proba(features)[:, 1]
    judged(lines, (name, "tf-idf, logistic regression", 0), chances, pairs)


def positions(model: RowMatcher, pairs: pd.DataFrame) -> np.ndarray:
    """Positions of pairs in both tables."""
    sides = zip(("left", "right"), model.tables_.tables, strict=True)
    return np.stack([table.positions(pairs[side]) for side, table in sides], axis=1)


def by_matcher(
    lines: Lines, key: tuple[str, str, int], tables: list[pd.DataFrame], pairs: pd.DataFrame, **settings: Any
) -> None:
    """The matcher as users have it, or with an encoder that reads pairs."""
    if key in lines:
        return
    parts, begun = dict(iter(pairs.groupby("split"))), time.process_time()
    model = RowMatcher(random_state=key[2], **settings)
    model.fit(*tables, parts["train"], validation=parts["valid"])
    chances, truth = model.predict_proba(parts["test"])[:, 1], parts["test"]["match"].to_numpy()
    spent = {"seconds": time.process_time() - begun}
    lines.put(key, scored(chances, truth, float(model.threshold_ or 0)) | spent)


def run(data: Path, cache: Path, names: list[str], *, tune: bool = False) -> None:
    """All figures that are not there yet, those of the matcher first; with ``tune`` those of pairs that are read."""
    lines, sets = Lines(RESULTS / "matching_rows.csv", *KEY), {name: read(data, name) for name in names}
    for name, (left, right, pairs) in sets.items():
        if tune:
            by_matcher(lines, (name, READ, 0), [left, right], pairs, cache_dir=cache, tune="all", plan=PLAN)
        for seed in range(0 if tune else SEEDS):
            by_matcher(lines, (name, "matcher", seed), [left, right], pairs, cache_dir=cache)
    if tune:
        return
    for name, (left, right, pairs) in sets.items():
        parts = dict(iter(pairs.groupby("split")))
        tfidf(lines, name, [left, right], pairs)
        by_recordlinkage(lines, name, [left, right], pairs)
        model = RowMatcher(cache_dir=cache)
        model.fit(left, right, parts["train"], validation=parts["valid"])
        by_features(lines, name, model, pairs)


def by_recordlinkage(lines: Lines, name: str, tables: list[pd.DataFrame], pairs: pd.DataFrame) -> None:
    """The package recordlinkage: Jaro-Winkler and q-grams of texts, nearness of numbers, logistic regression."""
    if (name, LINKAGE, 0) in lines:
        return
    import recordlinkage

    left, right = (table.set_index("id") for table in tables)
    compare = recordlinkage.Compare()
    for column in [column for column in left.columns if column in right.columns]:
        if pd.api.types.is_numeric_dtype(left[column]) and pd.api.types.is_numeric_dtype(right[column]):
            compare.numeric(column, column, method="gauss", scale=max(1e-9, float(left[column].std())), label=column)
        else:
            left[column], right[column] = left[column].map(shown_text), right[column].map(shown_text)
            for method in ("jarowinkler", "qgram"):
                compare.string(column, column, method=method, label=f"{column} {method}")
    at = pd.MultiIndex.from_frame(pairs[["left", "right"]])
    features = compare.compute(at, left, right).fillna(0.0).to_numpy()
    matches, train = pairs["match"].to_numpy(), pairs["split"].to_numpy() == "train"
    chances = LogisticRegression(max_iter=1000).fit(features[train], matches[train]).predict_proba(features)[:, 1]
    judged(lines, (name, LINKAGE, 0), chances, pairs)


if __name__ == "__main__":
    arguments = asked(__doc__, data=Path, cache=Path("runs/matching-rows"), sets=list(SETS), tune=False)
    run(arguments.data, arguments.cache, arguments.sets, tune=arguments.tune)
