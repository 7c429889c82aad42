"""Fewer rows: digits, time for 30 % of a network's steps; errors by which rows it trains on, or how it weighs them."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from vicinal.losses import loss_weights
from vicinal.samplers import SlidingLossWindow, UnbiasedPruning, diverse_anchors, keep_rows, prototype_distances

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, errors, share, epochs = x.float() / 16, {}, 0.3, 8
for seed in range(2):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test, random = order[:1000], order[1000:], np.random.default_rng(seed)
    hard = prototype_distances(x[train].numpy(), 20, seed=seed)
    for way in ("all", "random", "hard", "easy", "middle", "diverse", "window", "unbiased", "weighted"):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        adam, budget = torch.optim.Adam(model.parameters(), lr=3e-3), int(share * 1000 * epochs)
        chosen = keep_rows(hard, share, keep=way) if way in ("hard", "easy", "middle") else None
        chosen = diverse_anchors(x[train].numpy(), 300, random=random) if way == "diverse" else chosen
        chosen = random.choice(1000, 300, replace=False) if way == "random" else chosen
        sampler = {"window": SlidingLossWindow, "unbiased": UnbiasedPruning}.get(way)
        sampler = sampler(1000, epochs=epochs, keep=share + 0.2, seed=seed) if sampler else None
        while budget > 0:
            epoch = np.array(list(sampler)) if sampler else random.permutation(1000 if chosen is None else chosen)
            for some in np.array_split(epoch[:budget], max(1, len(epoch[:budget]) // 25)):
                losses = cross_entropy(model(x[train[some]]), y[train[some]], reduction="none")
                weights = len(some) * loss_weights(losses) if way == "weighted" else torch.ones(len(some))
                weights = torch.from_numpy(sampler.weights(some)).float() if way == "unbiased" else weights
                _ = sampler and sampler.record(some, losses.detach().numpy())
                adam.zero_grad(), (weights * losses).mean().backward(), adam.step()
            budget -= len(epoch)
        errors.setdefault(way, []).append(float((model(x[test]).argmax(1) != y[test]).float().mean()))
for way, each in errors.items():
    beside = " loses" if np.mean(each) > np.mean(errors["all"]) else ""
    print(f"{way:9} {100 * np.mean(each):5.2f} +- {100 * np.std(each):.2f} % of errors{beside}")
