"""A small table of several kinds of columns with a target that follows from them."""

import numpy as np
import pandas as pd

QUICK = {"max_epochs": 15, "learning_rate": 1e-2, "hidden": (16, 4), "patience": 15, "members": 2}


def table(rows=120, seed=0):
    """A number (some missing), a category that says nothing, and a text; the target follows number and text."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(0, 10, rows)
    mood = rng.choice(["good", "bad", "fair"], rows)
    price = size + np.select([mood == "good", mood == "bad"], [5.0, -5.0], 0.0) + rng.normal(0, 0.1, rows)
    shown = size.copy()
    shown[::17] = np.nan
    towns = rng.choice(["york", "bath"], rows)
    return pd.DataFrame({"size": shown, "town": towns, "note": [f"a {m} house" for m in mood]}), price
