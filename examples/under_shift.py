"""90 % promised for rows unlike those that calibrate: lighter cars, later cars, more malignant tumors.

Split conformal prediction, beside it, expects rows like those that calibrate. Printed are coverage and size.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, RidgeCV

from vicinal.calibration import LabelShiftSets, ShiftedQuantile, StronglyAdaptive, conformal_quantile, online_radii
from vicinal.data import cars_table


def say(name: str, usual: np.ndarray, ours: np.ndarray, sizes: tuple[float, float]) -> None:
    lost = " (loses)" if abs(ours.mean() - 0.9) >= abs(usual.mean() - 0.9) else ""
    print(f"{name} {ours.mean():.2f} with {sizes[1]:.1f}, split conformal {usual.mean():.2f} with {sizes[0]:.1f}{lost}")


cars = cars_table().dropna().sort_values("year", kind="stable")
x = cars[["displacement", "horsepower", "weight", "acceleration"]].to_numpy()
x, y, place, draw = x / x.std(0), cars["mpg"].to_numpy(), np.arange(len(x)) % 3, np.random.default_rng(0)
heavy = draw.random(len(x)) < 1 / (1 + np.exp(6 - 2 * x[:, 2]))
gap = np.abs(y - RidgeCV().fit(x[place == 0], y[place == 0]).predict(x))
judges, new = (place == 1) & heavy, (place == 2) & ~heavy
radius, size = conformal_quantile(gap[judges], 0.9), np.c_[np.ones(len(x)), x[:, 2]]
radii = ShiftedQuantile(0.9).fit(size[judges], gap[judges], size[new]).predict(size[new])
say("lighter cars, LR-QR:", gap[new] <= radius, gap[new] <= radii, (radius, radii.mean()))

gap = np.abs(y - RidgeCV().fit(x[:80], y[:80]).predict(x))
radius, online = conformal_quantile(gap[80:130], 0.9), StronglyAdaptive(0.9, scale=gap[80:130].max() * 3**0.5)
radii = np.array(online_radii(online, gap[80:]))[50:]
say("later cars, online:", gap[130:] <= radius, gap[130:] <= radii, (radius, radii.mean()))

x, y = load_breast_cancer(return_X_y=True)
chances = LogisticRegression().fit((z := (x / x.std(0))[:, :2])[:150], y[:150]).predict_proba(z)
judges, new = np.arange(150, 400), draw.choice(np.r_[400 : len(y)], 300, p=(p := 1.0 + 9 * (y[400:] == 0)) / p.sum())
plain = chances[new] >= -conformal_quantile(-chances[judges, y[judges]], 0.9)
sets = LabelShiftSets(0.1, 0.1).fit(chances[judges], y[judges], chances[new]).predict(chances[new])
at = np.arange(len(new)), y[new]
say("more malignant tumors, PAC sets:", plain[at], sets[at], (plain.sum(1).mean(), sets.sum(1).mean()))
