"""Negatives that a search finds before training (STAR), beside random ones: digits by vectors of their upper half.

Printed is the share of right digits among the five nearest.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import normalize

from vicinal.losses import triplet
from vicinal.samplers import draw_negatives

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, same = x[:, :32].float() / 16, y[:300, None] == y[:300]
near = torch.cdist(x[:300], x[:300]).topk(100, largest=False).indices
related = torch.where(same, torch.arange(300), -1)
every = torch.arange(300).expand(300, -1)


def right(results):
    """After 100 steps, with one negative of each row drawn from the results of a search."""
    torch.manual_seed(0)
    model, static = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)), draw_negatives(results, related)
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for _ in range(100):
        at = torch.randint(300, (64,))
        pairs = torch.stack([torch.multinomial(same[at].double(), 1)[:, 0], static[at, 0]], 1)
        vectors = normalize(model(x), dim=1)
        scores = (vectors[at][:, None] * vectors[pairs]).sum(-1)
        optimizer.zero_grad()
        triplet(scores, torch.tensor([[1.0, 0.0]]).expand(64, -1), margin=0.0, smooth=True).backward()
        optimizer.step()
    vectors = normalize(model(x), dim=1).detach()
    hits = (vectors[300:] @ vectors[:300].T).topk(5).indices
    return float((y[:300][hits] == y[300:, None]).double().mean())


ours, usual = right(near), right(every)
print(f"found by search {ours:.3f}, random {usual:.3f}{' (loses)' if ours <= usual else ''}")
