"""Tuned encoders against frozen ones, heads alike.

Every method of a set and split is one row of the CSV, with the error on the test rows in units of the variance of the
training labels, the error on the validation rows, and processor seconds; a row that is there is not run again. All that
is tuned has the same encoder, plan and seed. Vectors of an encoder ("frozen", "tuned by ...") are read by kernel ridge
and k-NN too, whose settings are chosen on the validation rows.

    python benchmarks/fine_tuning.py --data ../shared/data --sets tweets amazon stsb houses blood
"""

import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from nona_sets import draw
from resumable import RESULTS, Lines, asked
from sklearn.kernel_ridge import KernelRidge

from vicinal.data import Split, make_splits
from vicinal.encoders.base import embed
from vicinal.estimators import NeighborRegressor, TuningPlan
from vicinal.evaluation import knn_baseline, knn_grid

EPOCHS, LEARNING_RATE = 6, 1e-4
FIELDS = ("set", "split", "method", "test", "validation", "seconds", "settings")
GAMMAS, ALPHAS = (0.1, 0.3, 1.0, 3.0), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def texts(domain: str, data: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, dict[str, str]]:
    """Rated texts of a domain; those of one article share a group."""
    table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    table = draw(table[table["domain"] == domain])
    groups = pd.factorize(table["text" if domain == "tweets" else "group"])[0]
    return table[["text"]], table["rating"].to_numpy(float), groups, {"text": "minilm"}


def likeness(file: str, data: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, dict[str, str]]:
    """Pairs of sentences, and how alike they are."""
    table = draw(pd.read_parquet(data / "text" / file))
    groups = pd.factorize(table["sentence1"] + " | " + table["sentence2"])[0]
    return table[["sentence1", "sentence2"]], table["score"].to_numpy(float), groups, {"text": "pair:minilm"}


def blood(data: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, dict[str, str]]:
    """Photos of blood cells, and the area of the white one."""
    table = pd.read_parquet(data / "images" / "blood_cells.parquet")
    labels = np.log1p(table["wbc_box_area"].to_numpy(float))
    return table[["image"]], labels, np.arange(len(table)), {"image": "efficientnet-lite0"}


def houses(data: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, dict[str, str]]:
    """Photos of houses, and the price."""
    table = pd.read_csv(data / "houses" / "houses.csv", dtype={"zipcode": str})
    photos = [str(data / "houses" / "frontal256" / f"{number:03d}.jpg") for number in table["id"]]
    labels, groups = np.log(table["price"].to_numpy(float)), pd.factorize(table["dup_group"])[0]
    return pd.DataFrame({"image": photos}), labels, groups, {"image": "efficientnet-lite0"}


SETS: dict[str, Any] = {
    "tweets": lambda data: texts("tweets", data),
    "amazon": lambda data: texts("amazon", data),
    "stsb": lambda data: likeness("stsb_en.parquet", data),
    "blood": blood,
    "houses": houses,
}

MODELS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "tuned neighbors x8": {"tuned": True},
    "tuned dense x8": {"tuned": True, "head": "dense"},
}
"""What a fit is asked for."""


def fit(
    name: str,
    encoders: dict[str, str],
    x: pd.DataFrame,
    y: np.ndarray,
    groups: Any,
    split: Split,
    precision: str = "bf16-mixed",
) -> Any:
    """One model, trained on the training rows; the validation rows stop it and choose its readout."""
    settings = dict(MODELS[name])
    if settings.pop("tuned", False):
        usual = {"tune": "all", "encoder_learning_rate": LEARNING_RATE, "precision": precision}
        plan = TuningPlan(epochs=EPOCHS, rows=len(split.train), **usual)
        settings |= {"tune": plan.tune, "plan": plan}
    rows = np.concatenate([split.train, split.validation])
    model = NeighborRegressor(encoders=encoders, **settings)
    positions = np.arange(len(split.train), len(rows))
    return model.fit(x.iloc[rows], y[rows], groups=None if groups is None else groups[rows], validation=positions)


def kernel_ridge(vectors: np.ndarray, y: np.ndarray, split: Split) -> tuple[np.ndarray, np.ndarray, str]:
    """Predictions of validation and test rows; width and penalty by the validation rows, then fitted on both."""
    scale = np.median(((vectors[split.train[:500]][:, None] - vectors[split.train[:500]][None]) ** 2).sum(-1))
    mean = y[split.train].mean()

    def said(learned: np.ndarray, asked: np.ndarray, gamma: float, alpha: float) -> np.ndarray:
        model = KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma / scale)
        return model.fit(vectors[learned], y[learned] - mean).predict(vectors[asked]) + mean

    tried = {chosen: said(split.train, split.validation, *chosen) for chosen in product(GAMMAS, ALPHAS)}
    gamma, alpha = min(tried, key=lambda chosen: np.mean((tried[chosen] - y[split.validation]) ** 2))
    rows = np.concatenate([split.train, split.validation])
    return tried[gamma, alpha], said(rows, split.test, gamma, alpha), f"gamma {gamma:g} alpha {alpha:g}"


def main() -> None:
    """Fill the CSV."""
    settings = {"sets": list(SETS), "methods": list(MODELS), "splits": 3, "precision": "bf16-mixed"}
    options = asked(__doc__, data=Path("../shared/data"), out=RESULTS / "fine-tuning.csv", **settings)
    lines = Lines(options.out, "set", "split", "method")
    for name in options.sets:
        x, y, groups, encoders = SETS[name](options.data)
        together = None if len(np.unique(groups)) == len(groups) else groups
        for number, split in enumerate(make_splits(len(y), number=options.splits, groups=together)):
            for method in options.methods:
                if (name, number, method) in lines:
                    continue
                begun = time.process_time()
                model = fit(method, encoders, x, y, together, split, options.precision)
                spent = time.process_time() - begun
                predictions = [
                    model.predict(x.iloc[rows], ids=ids, groups=None if together is None else together[rows])
                    for rows, ids in ((split.validation, rows_in_bank(split)), (split.test, None))
                ]
                add = partial(note, lines, (name, number), y, split)
                add(method, *predictions, spent, type(model.network_.head).__name__)
                extra(method, model, x, y, split, add)


def note(
    lines: Lines,
    case: tuple[str, int],
    y: np.ndarray,
    split: Split,
    method: str,
    validation: Any,
    test: Any,
    seconds: float,
    settings: str,
) -> None:
    """Keep the errors of a method, in units of the variance of the training labels."""
    pairs = (test, split.test), (validation, split.validation)
    errors = [np.mean((predicted - y[rows]) ** 2) / y[split.train].var() for predicted, rows in pairs]
    line = (*case, method, *(f"{error:.4f}" for error in errors), f"{seconds:.0f}", settings)
    lines.add([dict(zip(FIELDS, line, strict=True))])


def rows_in_bank(split: Split) -> np.ndarray:
    """Ids of the validation rows in the bank, so that none is predicted from itself."""
    return np.arange(len(split.train), len(split.train) + len(split.validation))


def extra(method: str, model: Any, x: pd.DataFrame, y: np.ndarray, split: Split, add: Any) -> None:
    """What else reads the vectors of the encoder."""
    if len(model.table_encoder.encoders) > 1:
        return
    (part,) = model.table_encoder.encoders
    vectors = embed(part, part.prepare(x)).double().numpy()
    begun = time.process_time()
    validation, test, settings = kernel_ridge(vectors, y, split)
    add(f"kernel ridge on {method}", validation, test, time.process_time() - begun, settings)
    if "dense" in method:
        near, rows = model.embed(x), np.concatenate([split.train, split.validation])
        parts = near[split.train], y[split.train], near[split.validation], y[split.validation]
        settings = dict(knn_grid(*parts, near[split.test]).settings)
        validation = knn_baseline(parts[0], parts[1], parts[2], settings)
        test = knn_baseline(near[rows], y[rows], near[split.test], settings)
        name = f"k {settings['n_neighbors']}"
        add(f"{method}, then k-NN", validation.prediction, test.prediction, 0.0, name)


if __name__ == "__main__":
    main()
