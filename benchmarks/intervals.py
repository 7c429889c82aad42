"""Intervals of nominal 90 % beside conformal rivals on the plain tables: coverage, width, interval score, by quarter.

The estimator gets all rows to learn from and holds some out by itself; the rivals get the same rows, four fifths to
learn from and one fifth to calibrate by. ``MAPIE`` conformalizes quantiles of LightGBM and of CatBoost, ``crepes``
divides errors of a random forest by their size among the 25 nearest rows.

    pip install mapie crepes lightgbm catboost
    python benchmarks/intervals.py --data FILES    # FILES: see benchmarks/tables.py; a stopped run resumes
    python benchmarks/intervals.py --data FILES --large --splits 2    # 960 rows to learn from, up to 4,000 new ones

    pip install mapie lightgbm statsmodels
    python benchmarks/intervals.py --later    # the latest 22 % of series and made ones, beside EnbPI

"perfect" in ``--perfect`` is no method: how many sets intervals would pass that hold each row with probability .9.
"""

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from resumable import RESULTS, Lines, asked
from scipy.stats import rankdata
from tables import LARGE, MOST_ROWS, SETS, columns_of, read

KEY = ["set", "split", "method"]
LEVEL, LEARNED, NEW_ROWS = 0.9, 960, 4000
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


def perfect(sizes: list[int], splits: int, trials: int = 500) -> float:
    """Mean number of sets of these sizes on which intervals that hold each row with probability .9 pass by quarter.

    A row that several splits test is held by all of its intervals or by none.
    """
    rng, passed = np.random.default_rng(0), 0
    for rows, _ in product(sizes, range(trials)):
        inside, quarter = rng.random(rows) < LEVEL, np.arange(rows) * 4 // rows
        tested = np.concatenate([rng.permutation(rows)[round(0.8 * rows) :] for _ in range(splits)])
        share = np.bincount(quarter[tested], inside[tested], 4) / np.bincount(quarter[tested], minlength=4)
        passed += bool(((share > 0.86) & (share < 0.94)).all())
    return passed / trials


def measure(name: str, split: int, data: Path | None, methods: list[str], large: bool) -> pd.DataFrame:
    """A line a method."""
    from vicinal.estimators import NeighborRegressor

    table, y = read(name, data, NEW_ROWS + LEARNED if large else MOST_ROWS)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    learn, test = np.split(order, [LEARNED if large else round(0.8 * len(y))])
    begun = time.process_time()
    model = NeighborRegressor().fit(table.iloc[learn], y[learn])
    bounds = model.predict_interval(table.iloc[test], LEVEL)
    seconds = {"vicinal": time.process_time() - begun}
    distance = model.kneighbors(table.iloc[test], 5)[0].mean(axis=1)
    intervals = {"vicinal": bounds}
    encoder = columns_of(table).fit(table.iloc[learn])
    vectors = np.asarray(encoder.transform(table), dtype=float)
    fitted, calibrating = np.split(learn, [round(0.8 * len(learn))])
    rows = vectors[fitted], y[fitted], vectors[calibrating], y[calibrating]
    for method in [one for one in methods if one in RIVALS]:
        begun = time.process_time()
        intervals[method] = RIVALS[method](rows, vectors[test])
        seconds[method] = time.process_time() - begun
    spread = float(y[learn].std())
    return pd.DataFrame(
        {"set": name, "split": split, "method": method, "seconds": seconds[method]}
        | scored(each, y[test], distance, spread)
        for method, each in intervals.items()
        if method in methods
    )


def macrodata(target: str) -> tuple[pd.DataFrame, str, str]:
    """Quarters of the United States."""
    table = series("macrodata")
    return table.assign(when=table.year + table.quarter / 4)[["when", "infl", "tbilrate", target]], "when", target


def series(name: str) -> pd.DataFrame:
    """A table of statsmodels."""
    from importlib import import_module

    return import_module(f"statsmodels.datasets.{name}").load_pandas().data


def lagged(name: str, time: str, target: str, lags: tuple[int, ...]) -> tuple[pd.DataFrame, str, str]:
    """A series with its earlier numbers."""
    table = series(name).set_axis([time, target], axis=1)
    return table.assign(**{f"lag {lag}": table[target].shift(lag) for lag in lags}).dropna(), time, target


def monthly_co2() -> tuple[pd.DataFrame, str, str]:
    """Carbon dioxide at Mauna Loa."""
    table = series("co2").co2.resample("MS").mean().dropna()
    return pd.DataFrame({"when": table.index, "month": table.index.month.astype(str), "co2": table}), "when", "co2"


def made(kind: str, rows: int = 300) -> tuple[pd.DataFrame, str, str]:
    """A made series of some kind, beside a column that matters and the month."""
    random, t = np.random.default_rng([0, len(kind)]), np.arange(rows)
    x, noise = random.normal(size=(2, rows))
    level = {
        "trend and season": 0.1 * t + 4 * np.sin(np.pi * t / 6),
        "random walk": random.normal(size=rows).cumsum(),
        "step": 8.0 * (2 * t > rows),
        "stationary": 0.0 * t,
        "exponential": np.exp(t / 80),
        "wider noise": noise * t / 100,
    }[kind]
    y = level + (x + noise / 2) * (level / 10 if kind == "exponential" else 1)
    return pd.DataFrame({"t": t, "month": (t % 12).astype(str), "x": x, "y": y}), "t", "y"


LATER: dict[str, Callable[[], tuple[pd.DataFrame, str, str]]] = {
    "co2": monthly_co2,
    "nile": lambda: lagged("nile", "year", "volume", (1, 2)),
    "sunspots": lambda: lagged("sunspots", "year", "spots", (1, 2, 9, 11)),
    "consumption": lambda: macrodata("realcons"),
    "unemployment": lambda: macrodata("unemp"),
    "investment": lambda: (series("grunfeld")[["year", "firm", "value", "capital", "invest"]], "year", "invest"),
} | {kind: lambda kind=kind: made(kind) for kind in ("trend and season", "random walk", "step", "stationary")}
LATER |= {kind: lambda kind=kind: made(kind) for kind in ("exponential", "wider noise")}


def enbpi(known: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """EnbPI of MAPIE by blocks, of a ridge regression or of LightGBM: what predicts the latest quarter better."""
    from lightgbm import LGBMRegressor
    from mapie.regression import TimeSeriesRegressor
    from mapie.subsample import BlockBootstrap
    from sklearn.linear_model import RidgeCV

    models, cut = (RidgeCV(np.logspace(-3, 3, 13)), LGBMRegressor(n_jobs=1, verbose=-1)), round(0.75 * len(y))
    errors = [np.square(one.fit(known[:cut], y[:cut]).predict(known[cut:]) - y[cut:]).mean() for one in models]
    blocks = BlockBootstrap(n_resamplings=20, n_blocks=10, overlapping=False, random_state=0)
    rival = TimeSeriesRegressor(models[int(np.argmin(errors))], method="enbpi", cv=blocks, n_jobs=1).fit(known, y)
    return rival.predict(test, confidence_level=LEVEL)[1][:, :, 0]


def measure_later(name: str) -> pd.DataFrame:
    """A line a method: the latest 22 % of the rows, by intervals with and without times in the fit."""
    from vicinal.estimators import NeighborRegressor

    table, time_column, target = LATER[name]()
    table = table.sort_values(time_column, kind="stable").reset_index(drop=True)
    times, y, table = table[time_column], table.pop(target).to_numpy(dtype=float), table
    cut = int(np.searchsorted(times, times[round(0.78 * len(y))]))
    intervals, seconds = {}, {}
    for method, known in (("vicinal", {"times": times[:cut]}), ("without times", {})):
        begun = time.process_time()
        model = NeighborRegressor(target_transform="auto").fit(table[:cut], y[:cut], **known)
        intervals[method] = model.predict_interval(table[cut:], LEVEL)
        seconds[method] = time.process_time() - begun
    numbers = table.assign(**{time_column: pd.to_numeric(times)}).pipe(pd.get_dummies, dtype=float)
    scaled = ((numbers - numbers[:cut].mean()) / numbers[:cut].std().replace(0, 1)).to_numpy(dtype=float)
    begun = time.process_time()
    intervals["EnbPI"] = enbpi(scaled[:cut], y[:cut], scaled[cut:])
    seconds["EnbPI"] = time.process_time() - begun
    spread, distance = float(y[:cut].std()), np.arange(len(y) - cut)
    return pd.DataFrame(
        {"set": name, "split": 0, "method": method, "seconds": seconds[method]}
        | scored(each, y[cut:], distance, spread)
        for method, each in intervals.items()
    )


def main() -> None:
    """Measure what is not in the CSV yet."""
    options = {"splits": 5, "large": False, "later": False, "perfect": False, "methods": ["vicinal", *RIVALS]}
    given = asked(__doc__, data=Path(), **options)
    kind = "-later" if given.later else "-large" if given.large else ""
    lines, sets = (
        Lines(RESULTS / f"intervals{kind}.csv", *KEY),
        LATER if given.later else LARGE if given.large else SETS,
    )
    if given.perfect:
        print(perfect([len(read(name, given.data)[1]) for name in sets], given.splits))
        return
    for split, name in product(range(1 if given.later else given.splits), sets):
        if given.later:
            if (name, split, "EnbPI") not in lines:
                lines.add(measure_later(name))
        elif methods := [one for one in given.methods if (name, split, one) not in lines]:
            lines.add(measure(name, split, given.data, methods, given.large))


if __name__ == "__main__":
    main()
