"""What an encoder still knows of rows that its bank forgot: 60 digits with wrong labels, by KLoM.

Models are networks with a bank of hidden vectors. KLoM compares eight with eight that never saw the 60 rows; eight more
of these say how much is chance.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from vicinal.metrics import class_margins, klom

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, y, gone = x[:400].float() / 16, y[:400].clone(), torch.arange(60)
y[gone] = (y[gone] + 1) % 10
every, rest = torch.arange(400), torch.arange(60, 400)


def trained(rows, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model[:4](x).detach()


def margins(vectors, rows):
    """Of the 60 rows, by all other rows of a bank."""
    far = torch.cdist(vectors[gone], vectors[rows]).masked_fill(gone[:, None] == rows, torch.inf)
    weights = (-10 * far / far.topk(20, largest=False).values.mean()).softmax(1)
    return class_margins((weights @ nn.functional.one_hot(y[rows], 10).float() + 1e-3).log(), y[gone])


saw, never, again = ([trained(rows, seed + i) for i in range(8)] for rows, seed in ((every, 0), (rest, 0), (rest, 8)))
oracle = torch.stack([margins(vectors, rest) for vectors in never])
for name, models, rows in (("nothing forgotten", saw, every), ("bank forgot", saw, rest), ("fit anew", again, rest)):
    print(f"{name}: KLoM {klom(oracle, torch.stack([margins(vectors, rows) for vectors in models])).mean():.2f}")
