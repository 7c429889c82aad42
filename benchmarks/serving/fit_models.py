"""The models that load.py serves: numbers, 1e5 rows in the bank; texts by MiniLM, 2,000 rows.

python benchmarks/serving/fit_models.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from vicinal.estimators import NeighborRegressor

WORDS = (
    "a",
    "good",
    "bad",
    "fair",
    "old",
    "new",
    "small",
    "large",
    "house",
    "flat",
    "near",
    "far",
    "from",
    "sea",
    "park",
)


def numbers(rows, seed=0):
    """Eight columns of numbers and one of categories; the target is smooth in some of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 8)), columns=[f"x{i}" for i in range(8)])
    frame["town"] = rng.choice(["york", "bath", "leeds"], rows)
    price = np.sin(frame["x0"]) + frame["x1"] * frame["x2"] + (frame["town"] == "york")
    return frame, price.to_numpy() + rng.normal(0, 0.1, rows)


def texts(rows, seed=0):
    """Texts of twelve words; the target counts some of them."""
    rng = np.random.default_rng(seed)
    notes = [" ".join(rng.choice(WORDS, 12)) for _ in range(rows)]
    return pd.DataFrame({"note": notes}), np.array([n.count("good") - n.count("bad") for n in notes], dtype=float)


def main(folder):
    place = Path(folder)
    frame, price = numbers(100_000)
    model = NeighborRegressor(metric="kernel").fit(frame, price, ids=[f"r{i}" for i in range(len(frame))])
    model.notes_ = {"target": "price", "id": "id"}
    model.save(place / "numbers")
    frame, mood = texts(2000)
    model = NeighborRegressor(encoders={"note": "minilm"}, max_epochs=20).fit(frame, mood)
    model.notes_ = {"target": "mood"}
    model.save(place / "texts")


if __name__ == "__main__":
    main(sys.argv[1])
