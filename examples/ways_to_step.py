"""Ways to step: digits, 200 labels; errors on the others after equal numbers of gradients of the loss.

A penalty on the past, the worst weights nearby, labels in part the model's own, several steps a gradient; and Adam.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from vicinal.losses import SelfDistillation, TrajectoryLoss
from vicinal.training import AdversarialSteps, SurrogateSteps

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, errors, gradients, rows = x.float() / 16, {}, 60, torch.arange(200)
for seed in range(3):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test = order[:200], order[200:]
    for way in ("Adam", "trajectory", "adversarial", "self-distillation", "surrogate"):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        past, mixed = TrajectoryLoss(200, 10), SelfDistillation(200, 10, gradients)
        worst, bound = AdversarialSteps(adam, radius=0.1), SurrogateSteps(adam, rate=50.0, steps=5)
        for epoch in range(gradients // 2 if way == "adversarial" else gradients):  # which takes two gradients a step
            if way == "adversarial":
                worst.step(lambda: cross_entropy(model(x[train]), y[train]))
            elif way == "surrogate":
                bound.step(lambda: model(x[train]), lambda scores: cross_entropy(scores, y[train]))
            else:
                scores = model(x[train])
                loss = cross_entropy(scores, y[train]) + (way == "trajectory") * past(scores, rows, epoch=epoch)
                loss = mixed(scores, y[train], rows, epoch=epoch) if way == "self-distillation" else loss
                adam.zero_grad()
                loss.backward()
                adam.step()
        errors.setdefault(way, []).append(float((model(x[test]).argmax(1) != y[test]).float().mean()))
for way, each in errors.items():
    beside = "" if way == "Adam" else " wins" if np.mean(each) < np.mean(errors["Adam"]) else " loses"
    print(f"{way:18} {100 * np.mean(each):5.2f} +- {100 * np.std(each):.2f} % of errors{beside}")
