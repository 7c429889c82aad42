"""Clicks by learned distances (CML), with full and smaller tables of ids, beside alternating least squares.

Rows are scikit-learn's digits, columns their 64 pixels, a click is a dark pixel; a fifth of the clicks is hidden. Users
and items are points: what was clicked is near by (`warp`, users in the unit ball). `SelectedIdTable` weighs the
dimensions of items on other rows than it learns from, and is cut to half its numbers.

The distances lose to ALS, and here to popularity, in many times the time: `vicinal recommend` is ALS. Distances and
tables of ids are for your own network, whose encoders ALS cannot train.

    python examples/click_distances.py
"""

import numpy as np
import torch
from scipy import sparse
from sklearn.datasets import load_digits

from vicinal.encoders import IdTable, SelectedIdTable
from vicinal.factorization import als
from vicinal.losses import clip_rows, covariance_penalty, warp
from vicinal.metrics import recall_at_k

EPOCHS, WIDTH = 10, 16
clicks = torch.from_numpy(load_digits().data[:300] >= 8)
hidden = clicks & (torch.rand(clicks.shape, generator=torch.Generator().manual_seed(0)) < 0.2)
seen = clicks & ~hidden


def recall(scores: torch.Tensor) -> float:
    """Mean share of a row's hidden clicks among its first five columns."""
    return float(recall_at_k(scores.detach(), hidden.float(), (~seen).float(), k=5).nanmean())


def learned(items: torch.nn.Module) -> torch.Tensor:
    """Scores of all pairs after training users and items; of a SelectedIdTable its selection learns on odd rows."""
    users, every, draw = IdTable(len(seen), WIDTH), torch.arange(seen.shape[1]), torch.Generator().manual_seed(0)
    selection = [getattr(items, "selection", torch.nn.Parameter(torch.zeros(1)))]
    rest = [each for each in items.parameters() if each is not selection[0]]
    steps = torch.optim.Adam([*users.parameters(), *rest], 0.05), torch.optim.Adam(selection, 0.01)
    for _ in range(EPOCHS):
        for place, rows in enumerate(torch.randperm(len(seen), generator=draw).split(64)):
            people, things = users(rows), items(every)
            scores = -(people[:, None] - things).square().sum(-1)
            optimizer = steps[place % 2 if isinstance(items, SelectedIdTable) and place % 4 == 1 else 0]
            optimizer.zero_grad()
            drawn = torch.randint(seen.shape[1], (len(rows), 12), generator=draw)  # most of them were not clicked
            counted = seen[rows].scatter(1, drawn, True)  # noqa: FBT003
            loss = warp(scores, seen[rows].float(), counted.float(), columns=seen.shape[1])
            (loss + 0.001 * covariance_penalty(things)).backward()
            if isinstance(items, SelectedIdTable):
                items.even_gradients()
            optimizer.step()
            clip_rows(users.remainder.data)
    items = items.folded(seen.shape[1] * WIDTH // 2) if isinstance(items, SelectedIdTable) else items
    print(f"{type(items).__name__}: {items.parameter_count()} numbers for items", end=", ")
    return -(users(torch.arange(len(seen)))[:, None] - items(every)).square().sum(-1)


torch.manual_seed(0)
factors = als(sparse.csr_array(seen.numpy().astype(np.float32)), WIDTH, confidence=5.0, ridge=3.0)
print(f"ALS: recall@5 {recall(factors.rows @ factors.columns.T):.3f}")
print(f"popularity: recall@5 {recall(seen.sum(0).float().expand(len(seen), -1)):.3f}")
for table in (IdTable(64, WIDTH), IdTable(64, WIDTH, "multiplied"), SelectedIdTable(seen.sum(0), WIDTH)):
    print(f"recall@5 {recall(learned(table)):.3f}")
