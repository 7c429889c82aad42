"""Intervals of nominal 90 % beside conformal rivals on the plain tables: coverage, width, interval score, by quarter.

The estimator gets all rows to learn from and holds some out by itself; the rivals get the same rows, four fifths to
learn from and one fifth to calibrate by. ``MAPIE`` conformalizes quantiles of LightGBM and of CatBoost, ``crepes``
divides errors of a random forest by their size among the 25 nearest rows.

    pip install mapie crepes lightgbm catboost
    python benchmarks/intervals.py --data FILES    # FILES: see benchmarks/tables.py; a stopped run resumes
"""

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from tables import SETS, columns_of, read

RESULTS = Path(__file__).parent / "results" / "intervals.csv"
KEY = ["set", "split", "method"]
LEVEL = 0.9
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows to learn from, their numbers, rows to calibrate by, their numbers."""


def quantiles(model: Callable[[float], Any]) -> Callable[[Rows, np.ndarray], np.ndarray]:
    """Quantile regression that MAPIE conformalizes; ``model`` gives a regressor of a quantile."""

    def fit(rows: Rows, test: np.ndarray) -> np.ndarray:
        from mapie.regression import ConformalizedQuantileRegressor

        learn, y, calibrate, z = rows
        low = (1 - LEVEL) / 2
        three = [model(level).fit(learn, y) for level in (low, 1 - low, 0.5)]
        conformal = ConformalizedQuantileRegressor(three, confidence_level=LEVEL, prefit=True)
        conformal.conformalize(calibrate, z)
        return conformal.predict_interval(test, symmetric_correction=True)[1][:, :, 0]

    return fit


def lightgbm(level: float) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(objective="quantile", alpha=level, n_jobs=1, verbose=-1)


def catboost(level: float) -> Any:
    from catboost import CatBoostRegressor

    fixed = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return CatBoostRegressor(loss_function=f"Quantile:alpha={level}", **fixed)


def normalized(rows: Rows, test: np.ndarray) -> np.ndarray:
    """A random forest whose errors crepes divides by those of the nearest rows, out of bag."""
    from crepes import WrapRegressor
    from crepes.extras import DifficultyEstimator
    from sklearn.ensemble import RandomForestRegressor

    learn, y, calibrate, z = rows
    forest = WrapRegressor(RandomForestRegressor(500, oob_score=True, random_state=0, n_jobs=1))
    forest.fit(learn, y)
    errors = y - forest.learner.oob_prediction_
    forest.calibrate(calibrate, z, de=DifficultyEstimator().fit(learn, residuals=errors, scaler=True))
    return forest.predict_int(test, confidence=LEVEL)


RIVALS = {"MAPIE, LightGBM": quantiles(lightgbm), "MAPIE, CatBoost": quantiles(catboost), "crepes, forest": normalized}


def scored(bounds: np.ndarray, truth: np.ndarray, distance: np.ndarray, spread: float) -> dict[str, float]:
    """Coverage, width and interval score in deviations, coverage by quarter of the middle and of the distance."""
    low, high = bounds.T
    inside = (low <= truth) & (truth <= high)
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    width = high - low
    line = {"covered": inside.mean(), "width": width.mean() / spread}
    line["score"] = (width + 2 / (1 - LEVEL) * missed).mean() / spread
    for name, values in (("prediction", low + high), ("distance", distance)):
        quarter = np.ceil(4 * rankdata(values, "ordinal") / len(values)).astype(int)
        line |= {f"{name} {number}": inside[quarter == number].mean() for number in range(1, 5)}
    return line


def measure(name: str, split: int, data: Path | None) -> pd.DataFrame:
    """A line a method."""
    from vicinal.estimators import NeighborRegressor

    table, y = read(name, data)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    learn, test = np.split(order, [round(0.8 * len(y))])
    begun = time.process_time()
    model = NeighborRegressor().fit(table.iloc[learn], y[learn])
    bounds = model.predict_interval(table.iloc[test], LEVEL)
    seconds = {"vicinal": time.process_time() - begun}
    distance = model.kneighbors(table.iloc[test], 5)[0].mean(axis=1)
    intervals = {"vicinal": bounds}
    encoder = columns_of(table).fit(table.iloc[learn])
    vectors = np.asarray(encoder.transform(table), dtype=float)
    fitted, calibrating = np.split(learn, [round(0.8 * len(learn))])
    for method, fit in RIVALS.items():
        begun = time.process_time()
        intervals[method] = fit((vectors[fitted], y[fitted], vectors[calibrating], y[calibrating]), vectors[test])
        seconds[method] = time.process_time() - begun
    spread = float(y[learn].std())
    return pd.DataFrame(
        {"set": name, "split": split, "method": method, "seconds": seconds[method]}
        | scored(each, y[test], distance, spread)
        for method, each in intervals.items()
    )


def main() -> None:
    """Measure what is not in the CSV yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder below which the files are")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    done = set()
    if given.out.exists():
        done = {(name, split) for name, split, _ in pd.read_csv(given.out)[KEY].itertuples(index=False)}
    for split, name in product(range(given.splits), SETS):
        if (name, split) not in done:
            lines = measure(name, split, given.data)
            lines.to_csv(given.out, mode="a", header=not given.out.exists(), index=False, float_format="%.6g")
            print(lines[["set", "split", "method", "covered", "score", "seconds"]].to_string(header=False), flush=True)


if __name__ == "__main__":
    main()
