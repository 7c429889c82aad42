"""Digits as clouds of ink, moved by up to three pixels: share of right digits by the nearest of 120 others.

The distance between clouds is sliced Wasserstein, or that of Gaussians with their covariances (Bures-Wasserstein), both
around the center; beside them pixels.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from vicinal.similarity import bures_log, bures_wasserstein
from vicinal.transport import draw_directions, sliced_wasserstein

draw = torch.Generator().manual_seed(0)
order = torch.randperm(1797, generator=draw)[:180]
images, digits = torch.from_numpy(load_digits().images)[order], torch.from_numpy(load_digits().target)[order]
moved = torch.zeros(180, 11, 11, dtype=images.dtype)
for row, (down, right) in enumerate(torch.randint(4, (180, 2), generator=draw).tolist()):
    moved[row, down : down + 8, right : right + 8] = images[row]
grid, ink = torch.cartesian_prod(torch.arange(11.0), torch.arange(11.0)).double(), moved.flatten(1)
ink = ink / ink.sum(1, keepdim=True)
points = grid - (ink @ grid)[:, None]  # [180, 121, 2], around the center of each
spread = (points * ink[..., None]).mT @ points + 0.01 * torch.eye(2)
train, test = slice(120), slice(120, None)
zero, along = torch.zeros(180, 2).double(), draw_directions(2, 12, generator=draw)
sliced = [
    sliced_wasserstein(points[train], one.expand(120, -1, -1), ink[train], mass.expand(120, -1), directions=along)
    for one, mass in zip(points[test], ink[test], strict=True)
]
scores = {
    "sliced Wasserstein": -torch.stack(sliced),
    "Gaussians": bures_wasserstein(zero[test], spread[test], zero[train], spread[train]),
    "pixels": -torch.cdist(ink[test], ink[train]),
}
for name, score in scores.items():
    print(f"{name}: {(digits[train][score.argmax(1)] == digits[test]).double().mean():.2f}")
flat = bures_log(spread[train].mean(0), spread).flatten(1).numpy()
model = LogisticRegression(max_iter=1000).fit(flat[train], digits[train])
print(f"logistic regression on tangents of covariances: {model.score(flat[test], digits[test]):.2f}")
