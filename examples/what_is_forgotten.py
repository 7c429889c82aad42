"""What an encoder still knows of rows that its bank forgot: 60 digits with wrong labels, by KLoM.

Models are networks with a bank of hidden vectors. KLoM compares eight with eight that never saw the 60 rows; eight more
of these say how much is chance. Tuned ones learn the logits of members that left these rows out, for 10 of 100 steps.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from vicinal.metrics import class_margins, klom

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, y, gone = x[:400].float() / 16, y[:400].clone(), torch.arange(60)
y[gone] = (y[gone] + 1) % 10
every, rest = torch.arange(400), torch.arange(60, 400)


def trained(rows, seed, *, model=None, target=y, steps=100):
    torch.manual_seed(seed)
    model = model or nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    loss = nn.functional.cross_entropy if target is y else nn.functional.mse_loss
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x[rows]), target[rows]).backward()
        optimizer.step()
    return model


def margins(model, rows):
    """Of the 60 rows, by all other rows of a bank."""
    vectors = model[:4](x).detach()
    far = torch.cdist(vectors[gone], vectors[rows]).masked_fill(gone[:, None] == rows, torch.inf)
    weights = (-10 * far / far.topk(20, largest=False).values.mean()).softmax(1)
    return class_margins((weights @ nn.functional.one_hot(y[rows], 10).float() + 1e-3).log(), y[gone])


saw, never, again = ([trained(rows, seed + i) for i in range(8)] for rows, seed in ((every, 0), (rest, 0), (rest, 8)))
oracle, parts = torch.stack([margins(model, rest) for model in never]), {"nothing forgotten": (saw, every)}
parts |= {"bank forgot": (saw, rest), "fit anew": (again, rest)}
members = torch.stack([trained(rest, 20 + i)(x).detach() for i in range(4)]).mean(0)
seen = {name: torch.stack([margins(model, rows) for model in models]) for name, (models, rows) in parts.items()}
tuned = [trained(every, i, model=model, target=members, steps=10) for i, model in enumerate(saw)]
seen["tuned toward members without them"] = torch.stack([margins(model, rest) for model in tuned])
for name, each in seen.items():
    print(f"{name}: KLoM {klom(oracle, each).mean():.2f}")
