"""Coverage of NeighborRegressor.predict_interval itself: fit, predict, count."""

from pathlib import Path

import numpy as np
import pandas as pd
from calibration_intervals import COVERAGE, by_quartile
from calibration_models import SPLITS, drawn

from vicinal.calibration import interval_quality
from vicinal.data import make_splits
from vicinal.estimators import NeighborRegressor

SETS, ROWS = ("houses", "books", "tweets", "valence"), 700
SETTINGS = {"batch_size": 128, "dropout": 0.4, "patience": 6, "max_epochs": 30}


def public(name: str, cache: Path) -> list[dict]:
    """Ten splits; the test rows are those of the split, the estimator holds out its own calibration rows."""
    features, labels, groups = drawn(name, cache, ROWS)
    grouped = groups if len(np.unique(groups)) < len(groups) else None
    made = []
    for split in make_splits(len(labels), number=SPLITS, groups=grouped):
        rows = np.concatenate([split.train, split.validation])
        frame = pd.DataFrame({"vector": list(features)})
        model = NeighborRegressor(columns={"vector": "vector"}, random_state=split.seed, **SETTINGS)
        model.fit(frame.iloc[rows], labels[rows], groups=None if grouped is None else groups[rows])
        low, high = model.predict_interval(frame.iloc[split.test], COVERAGE).T
        truth, deviation = labels[split.test], labels[rows].std()
        found = interval_quality(truth, low, high, COVERAGE)
        error = float(np.mean((model.predict(frame.iloc[split.test]) - truth) ** 2))
        made.append(
            {
                "split": split.seed,
                "method": "predict_interval",
                "covered": found["covered"],
                "width": found["width"] / deviation,
                "score": found["interval_score"] / deviation,
                "error": error / deviation**2,
                "rows": len(truth),
                **by_quartile(truth, (truth >= low) & (truth <= high)),
            }
        )
    return made
