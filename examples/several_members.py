"""Several members of 100 labels, trained apart or to differ elsewhere: errors of their mean, two chosen, stacked."""

import functools

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy, nll_loss

from vicinal.heads import MemberSelection
from vicinal.losses import member_diversity

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, order = x.float() / 16, torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, held, test = order[:100], order[100:300], order[300:]


def fit(module, loss, steps):
    adam = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        adam.zero_grad()
        loss().backward()
        adam.step()


for strength in (0.0, 5.0):
    said, _ = [], torch.manual_seed(0)
    for _ in range(4):
        body = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
        before = torch.stack(said)[:, held] if said else torch.zeros(1, len(held), 10)
        apart = functools.partial(member_diversity, teacher_scores=before, strength=strength)
        fit(body, lambda: cross_entropy(body(x[train]), y[train]) + apart(body(x[held])), 60)
        said.append(body(x).detach())
    chances, choice = torch.stack(said, 1).softmax(-1), MemberSelection(64, 4, 2)  # [n, 4, 10]
    fit(choice, lambda: nll_loss(choice(x[held], chances[held]).clamp(min=1e-6).log(), y[held]), 40)
    stack = LogisticRegression().fit(chances[held].flatten(1), y[held])
    guesses = {"mean": chances[test].mean(1), "chosen": choice.eval()(x[test], chances[test])}
    guesses["stacked"] = torch.from_numpy(stack.predict_proba(chances[test].flatten(1)))
    wrong = [f"{name} {float((g.argmax(1) != y[test]).float().mean()):.3f}" for name, g in guesses.items()]
    print(f"members {'that differ' if strength else 'apart':11} errors: {', '.join(wrong)}")
