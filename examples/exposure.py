"""Clicks need exposure: rows are digits, columns their pixels, relevant are dark ones; frequent ones were shown more.

Average precision of what was relevant and not clicked, where clicks count for their exposure, or as they are.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from vicinal.losses import exposed_relevance
from vicinal.metrics import average_precision

relevant = torch.from_numpy(load_digits().data[:600] >= 8).float()
relevant = relevant[:, relevant.sum(0) > 5]
shown = (relevant.mean(0) / relevant.mean(0).max()) ** 0.75
clicks = relevant * (torch.rand(relevant.shape, generator=torch.Generator().manual_seed(0)) < shown)
propensity = (clicks.sum(0) / clicks.sum(0).max()).sqrt().clamp(min=0.01)  # as the paper estimates it


def precision(scores):
    return float(average_precision(scores.detach(), relevant, 1 - clicks).nanmean())


def factors(clip):
    """Of 12 numbers, after 100 steps; a clip of 1 takes clicks for relevance."""
    torch.manual_seed(0)
    model = nn.ParameterList([torch.randn(600, 12), torch.randn(12, len(shown)), torch.zeros(len(shown))])
    optimizer = torch.optim.Adam(model.parameters(), 0.03, weight_decay=1e-4)
    for _ in range(100):
        optimizer.zero_grad()
        exposed_relevance(model[0] @ model[1] + model[2], clicks, propensity=propensity, clip=clip).backward()
        optimizer.step()
    return precision(model[0] @ model[1] + model[2])


ours, usual = factors(0.1), factors(1.0)
print(f"exposure {ours:.3f}, clicks as they are {usual:.3f}{' (loses)' if ours <= usual else ''}, ", end="")
print(f"popularity {precision(clicks.mean(0).expand_as(clicks)):.3f}")
