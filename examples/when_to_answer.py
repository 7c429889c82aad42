"""Breast tumors: error over the share answered, and calibration within groups of rows, beside logistic regression."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from vicinal.calibration import LevelSetBoosting, area_under_selective_curve, multicalibration_error, selective_curve

x, y = load_breast_cancer(return_X_y=True)
x = (x - x[:300].mean(0)) / x[:300].std(0)
model = LogisticRegression().fit(x[:300, :4], y[:300])
before, after = (model.predict_proba(part[:, :4])[:, 1] for part in (x[:300], x[300:]))
wrong, sure = (after > 0.5) != y[300:], np.abs(after - 0.5)
coverage, error = selective_curve(sure, wrong.astype(float))
at = np.searchsorted(coverage, 0.8)
print(f"error {wrong.mean():.3f} on all rows, {error[at]:.3f} on the surest 80 %")
print(f"area under error by coverage {area_under_selective_curve(sure, wrong.astype(float)):.4f}")
boosted = LevelSetBoosting(levels=5, rounds=5).fit(x[:300], y[:300].astype(float), start=before)
groups = (x[300:, 4:8] > 0).astype(int)
usual, ours = (
    float(np.max(multicalibration_error(p, y[300:].astype(float), groups)))
    for p in (after, boosted.predict(x[300:], start=after))
)
print(
    f"largest calibration error of a group: boosted {ours:.4f}, plain {usual:.4f}{' (loses)' if ours >= usual else ''}"
)
