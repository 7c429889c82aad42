"""Two halves of the wine table, each with half of the columns, their rows out of order: which belong together?

Shares of rows with a partner of their class, and with their own; costs are learned from 60 pairs, for 60 others.
"""

import numpy as np
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from vicinal.data import match_labels
from vicinal.transport import assignment, fused_transport, inverse_transport, same_class

x, y = load_wine(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = StandardScaler().fit_transform(x)[order], y[order]
one, other = x[:, ::2], x[:, 1::2]
known, rest = np.arange(60), np.arange(60, 120)
left, right = (torch.from_numpy(half) for half in (one, other))
costs = inverse_transport(torch.eye(60) / 60, left[known], right[known], strength=2e-3, steps=15)
guess = torch.from_numpy(RidgeCV().fit(one[known], other[known]).predict(one[rest]))
scores = {"ridge": -torch.cdist(guess, right[rest]), "inverse transport": -left[rest] @ costs @ right[rest].T}
classes = torch.from_numpy(y[rest])


def say(name: str, partner: torch.Tensor) -> None:
    """Print how many rows have a partner of their class, and their own."""
    itself = float((partner == torch.arange(60)).double().mean())
    print(f"{name:38} class {float((classes[partner] == classes).double().mean()):.2f}, row {itself:.2f}")


for name, score in scores.items():
    say(f"{name}, assignment", assignment(score))
plan = fused_transport(scores["ridge"], same_class(classes), None, strength=0.05, steps=60, tolerance=1e-4)
say("ridge, transport fused by class", plan.argmax(1))
mixed, part = np.arange(60), np.random.default_rng(1).permutation(60)[:18]
mixed[part] = np.roll(part, 1)  # 18 of 60 labels are out of place
matched = match_labels(np.c_[one[rest], np.ones(60)], other[rest][mixed])
say("labels put back, 18 of 60 out of place", torch.from_numpy(mixed[matched.order]))
