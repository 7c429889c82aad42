"""Tables of texts, numbers and categories that MulTaBench has, by its way of splitting, beside its published figures.

AUC of IMDB (whether a film is a drama), root mean squared error of chocolate (rating) and of books (logarithm of the
price to base 10). Splits are those of the package: three folds,
twice, seed 42. Of IMDB rows and order are those of the package `tabstar`; of chocolate two rows are missing, and of
books MulTaBench has 4,989 of the 6,237 rows, which are not known: as many are drawn. So folds of these two are not the
same rows.

    pip download --no-deps multabench tabstar    # then unpack both below FILES
    nice python benchmarks/mixed_tables.py --data FILES --shared ../shared/data
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from resumable import RESULTS, Lines, asked
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
from tables import of_file

from vicinal.estimators import NeighborClassifier, NeighborRegressor

SEED, FOLDS, REPEATS = 42, 3, 2
BOOKS = 4989
TABLES = {  # table: its name in MulTaBench
    "imdb": "BIN_TEXT_IMDB_GENRE",
    "chocolate": "REG_TEXT_CHOCOLATE_BAR_RATINGS",
    "books": "REG_TEXT_BOOK_PRICE",
}
METHODS = ("default", "CatBoost", "LightGBM", "TabPFN-3.5")


def read(name: str, data: Path, shared: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns and target."""
    if name == "imdb":
        table = of_file("imdb.csv", data)
        return table.drop(columns="Genre_is_Drama"), table["Genre_is_Drama"].to_numpy(dtype=str)
    if name == "chocolate":
        table = pd.read_csv(shared / "tables" / "flavors_of_cacao.csv")
        return table.drop(columns="Rating"), table["Rating"].to_numpy(dtype=float)
    table = pd.read_parquet(shared / "text" / "book_prices.parquet").sample(BOOKS, random_state=0, ignore_index=True)
    return table.drop(columns="price"), np.log10(table["price"].to_numpy(dtype=float))


def measured(name: str, split: int, data: Path, shared: Path) -> dict[str, Any]:
    """The score of the default, and seconds of a fit."""
    table, y = read(name, data, shared)
    cutter = RepeatedStratifiedKFold if name == "imdb" else RepeatedKFold
    learn, test = list(cutter(n_splits=FOLDS, n_repeats=REPEATS, random_state=SEED).split(np.zeros(len(y)), y))[split]
    begin = time.process_time()
    estimator = NeighborClassifier() if name == "imdb" else NeighborRegressor()
    model = estimator.fit(table.iloc[np.sort(learn)].reset_index(drop=True), y[np.sort(learn)])
    seconds, rows = time.process_time() - begin, table.iloc[test].reset_index(drop=True)
    if name == "imdb":
        score = roc_auc_score(y[test] == "True", model.predict_proba(rows)[:, list(model.classes_).index("True")])
    else:
        score = float(np.sqrt(np.square(model.predict(rows) - y[test]).mean()))
    return {"score": score, "seconds": seconds, "chosen": f"{model.metric_} {model.readout_}"}


def published(name: str, split: int, method: str, data: Path) -> dict[str, Any]:
    """What the package says of a method."""
    (path,) = data.rglob(f"leaderboard/models/{method}.csv")
    lines = pd.read_csv(path)
    line = lines[(lines["dataset"] == TABLES[name]) & (lines["fold"] == split)].iloc[0]
    return {"score": abs(line["test_score"])}


def main() -> None:
    """Measure what is not in the CSV yet."""
    options = {"shared": Path("../shared/data"), "out": RESULTS / "mixed-tables.csv", "splits": FOLDS * REPEATS}
    given = asked(__doc__, data=Path(), **options, only=list(TABLES), methods=list(METHODS))
    lines = Lines(given.out, "table", "split", "method")
    for name in given.only:
        for split in range(given.splits):
            for method in given.methods:
                if (name, split, method) not in lines:
                    of_default = method == "default"
                    got = measured(name, split, given.data, given.shared) if of_default else {}
                    got = got or published(name, split, method, given.data)
                    known = {"table": name, "split": split, "method": method}
                    lines.add([known | dict.fromkeys(("score", "seconds", "chosen")) | got])


if __name__ == "__main__":
    main()
