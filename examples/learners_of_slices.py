"""Several learners: digits 0 to 6 train, 7 to 9 were never seen; MAP@R among these.

One loss of the whole embedding, beside four learners: each has a cluster of the data and a slice of the embedding.
"""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import normalize

from vicinal.losses import EmbeddingLoss, SubspaceLearners
from vicinal.metrics import map_at_r

x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x = x.float() / 16
seen, new = torch.where(y < 7)[0], y > 6
for learners in (1, 4):
    scores = []
    for seed in range(3):
        torch.manual_seed(seed)
        body = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
        parts = SubspaceLearners(EmbeddingLoss("triplet"), 32, learners=learners)
        adam = torch.optim.Adam(body.parameters())
        for step in range(80):
            if step % 40 == 0:
                part = parts.assign(body(x[seen]))
            mine = seen[part == step % learners]
            some = mine[torch.randint(len(mine), (64,))]
            adam.zero_grad()
            parts(body(x[some]), y[some], step % learners).backward()
            adam.step()
        z = normalize(body(x[new]).detach(), dim=1)
        alike = (y[new][:, None] == y[new]).float().fill_diagonal_(0)
        scores.append(map_at_r((z @ z.T).fill_diagonal_(-9), alike).mean())
    each = torch.stack(scores)
    print(f"{learners} learner{'s' * (learners > 1)}: MAP@R {float(each.mean()):.3f} +- {float(each.std()):.3f}")
