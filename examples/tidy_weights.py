"""Tidy weights: digits, a network trained with a penalty on its weights, beside weight decay.

Errors on digits, on digits rotated by 20 degrees (another domain), and with signs as weights of the first layer.
"""

import torch
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from vicinal.losses import RationaleInvariance, cauchy_schwarz, group_orthogonality

x, y = load_digits(return_X_y=True)
turned = torch.from_numpy(rotate(x.reshape(-1, 8, 8), 20, (1, 2), reshape=False, order=1).reshape(-1, 64)).float() / 16
x, y = torch.from_numpy(x).float() / 16, torch.from_numpy(y)
train, test = torch.arange(900), torch.arange(900, len(x))
print(f"{'errors in %':22}plain rotated  signs")
for name in ("weight decay", "rationale invariance", "group orthogonality", "Cauchy-Schwarz"):
    torch.manual_seed(0)
    body, head = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), torch.nn.Linear(64, 10)
    decay = 0.1 if name == "weight decay" else 0.0
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=0.01, weight_decay=decay)
    alike = RationaleInvariance(10, 64, factor=0.01)
    for _ in range(120):
        features = body(x[train])
        loss = cross_entropy(head(features), y[train])
        if name == "rationale invariance":
            loss = loss + alike(features, y[train], head.weight)
        elif name == "group orthogonality":
            loss = loss + 1e-3 * group_orthogonality(body[0].weight)
        elif name == "Cauchy-Schwarz":
            loss = loss + 1e-2 * cauchy_schwarz(body[0].weight, scale_free=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        wrong = [(head(body(z[test])).argmax(1) != y[test]).float().mean() for z in (x, turned)]
        body[0].weight.copy_(body[0].weight.sign() * body[0].weight.abs().mean(1, keepdim=True))
        wrong.append((head(body(x[test])).argmax(1) != y[test]).float().mean())
    print(f"{name:22}" + " ".join(f"{100 * float(each):6.1f}" for each in wrong))
