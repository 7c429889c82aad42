"""At most k partners: wine rows whose halves are out of order, and diabetes by the k nearest rows.

A plan with at most k partners a row, all taken as often, beside each row's k best; and weights of neighbors by
projection to the simplex (k-sparsemax), beside even ones and inverse distances, each with its best k.
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from vicinal.masks import k_sparsemax
from vicinal.transport import sparse_transport

x = StandardScaler().fit_transform(load_wine().data)[np.random.default_rng(0).permutation(178)]
guess = RidgeCV().fit(x[:80, ::2], x[:80, 1::2]).predict(x[80:, ::2])
scores = -torch.cdist(torch.from_numpy(x[80:, 1::2]), torch.from_numpy(guess)).square()
for k in (1, 3):
    best = torch.zeros_like(scores).scatter(0, scores.topk(k, dim=0).indices, 1.0)
    ours, usual = (float((plan.diagonal() > 0).double().mean()) for plan in (sparse_transport(scores, k).plan, best))
    print(f"own half among {k}: plan {ours:.2f}, best {usual:.2f}{' (loses)' if ours <= usual else ''}")

x, y = load_diabetes(return_X_y=True)
x, errors = StandardScaler().fit_transform(x), {}
distances = torch.cdist(torch.from_numpy(x), torch.from_numpy(x[:200]))
for k in (10, 20, 40):
    errors["k-sparsemax", k] = y - k_sparsemax(-0.05 * distances, k).numpy() @ y[:200]
    for weights in ("uniform", "distance"):
        errors[weights, k] = y - KNeighborsRegressor(k, weights=weights).fit(x[:200], y[:200]).predict(x)
for name in ("k-sparsemax", "uniform", "distance"):
    k = min((10, 20, 40), key=lambda k: np.square(errors[name, k][200:320]).mean())
    print(f"{name}, k {k}: RMSE {np.sqrt(np.square(errors[name, k][320:]).mean()):.1f}")
